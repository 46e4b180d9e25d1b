import http.client
from threading import Thread

import pytest

pytest.importorskip("igraph", reason='igraph is missing: pip install "hgpo[report]"')
pytest.importorskip("vl_convert", reason='vl-convert-python is missing: pip install "hgpo[report]"')

from hgpo.report.payload import unpack
from hgpo.report.report import build_report
from hgpo.report.serve import LiveReport, make_server, version_of


@pytest.fixture
def server(folder):
    made = make_server(LiveReport(folder, lambda: build_report(folder)), port=0)
    thread = Thread(target=made.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    yield made
    made.shutdown()
    made.server_close()
    thread.join()


def ask(server, path, host=None):
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=30)
    connection.request("GET", path, headers={} if host is None else {"Host": host})
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    return answer.status, answer.headers, body


def test_it_listens_on_this_machine_alone(server):
    assert server.server_address[0] == "127.0.0.1"


@pytest.mark.slow
def test_data_follows_the_folder(server, folder, rows, write):
    version = ask(server, "/version")[2]
    header, _ = unpack(ask(server, "/data")[2].decode())
    assert [figures["update"] for figures in header["figures"]] == [1, 2]
    write(folder / "00003.jsonl", rows)
    assert ask(server, "/version")[2] != version
    header, _ = unpack(ask(server, "/data")[2].decode())
    assert [figures["update"] for figures in header["figures"]] == [1, 2, 3]


def test_another_site_cannot_ask(server):
    assert ask(server, "/version", host="example.org")[0] == 403
    assert ask(server, "/version", host=f"localhost:{server.server_port}")[0] == 200


def test_nothing_but_the_report_is_served(server):
    assert ask(server, "/../../etc/passwd")[0] == 404
    assert ask(server, "/00001.jsonl")[0] == 404
    status, headers, _ = ask(server, "/version")
    assert (status, headers["X-Content-Type-Options"], headers["Cache-Control"]) == (200, "nosniff", "no-store")


def test_a_folder_that_went_away_is_an_answer(server, folder):
    for file in folder.iterdir():
        file.unlink()
    folder.rmdir()
    assert ask(server, "/version")[0] == 503


def test_it_is_rendered_once_for_all_who_ask(folder):
    built = []
    live = LiveReport(folder, lambda: built.append(1) or build_report(folder))
    assert live.page() is live.page()
    assert live.data() is live.data()
    assert len(built) == 1


def test_versions_differ_when_a_file_does(folder):
    before = version_of(folder)
    with (folder / "00002.jsonl").open("a") as file:
        file.write("\n")
    assert version_of(folder) != before


def test_versions_of_a_run_without_rollouts_are_those_of_its_metrics(tmp_path):
    before = version_of(tmp_path)
    (tmp_path / "metrics.jsonl").write_text("{}")
    assert version_of(tmp_path) != before


@pytest.mark.parametrize("port", [99999, -1])
def test_a_port_that_there_is_not_is_refused(folder, port):
    with pytest.raises(ValueError, match=f"port {port}: ports are 1 to 65535, or 0 for any free one"):
        make_server(LiveReport(folder, lambda: build_report(folder)), port)


def test_a_port_that_is_taken_is_named(server, folder):
    port = server.server_port
    with pytest.raises(ValueError, match=f"port {port}: .*in use; choose another, or 0 for any free one"):
        make_server(LiveReport(folder, lambda: build_report(folder)), port)

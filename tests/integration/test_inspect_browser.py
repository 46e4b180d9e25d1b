"""The report in a real browser: each view's figures against the library's, and hostile text in every field.

Needs Chromium (Debian: `apt-get install chromium`) and playwright, which is in the extra `dev`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pytest

from hgpo import compute_advantages
from hgpo.estimators.diagnostics import summarise_levels
from hgpo.estimators.transition_graph import transition_graph
from hgpo.report.analysis import prompt_consistency
from hgpo.report.estimator_comparison import NO_TRAINING, Training, report_estimators
from hgpo.report.rendering import MAX_BYTES, fitting_page
from hgpo.report.report import Report, build_report
from hgpo.rollout.state_keys import Visit
from hgpo.storage.step_batches import step_batch_from_table
from house import write_rows
from stored_rollouts import read_rollouts

pytestmark = pytest.mark.slow

ATTACKS = (
    "<script>window.acted = 1</script>",
    "</script></style></title><script>window.acted = 1</script>",
    "<img src=x onerror='window.acted = 1'><svg onload='window.acted = 1'><a href='javascript:acted=1'>x</a></svg>",
    "[click](javascript:window.acted=1) **bold** `code` <!-- $data ${title} ]]>",
    "\x1b[31mred\x1b[0m \x1b]8;;https://example.org\x07link\x1b]8;;\x07 \x07",
    "\u202egnp.exe\u202c \u2066isolated\u2069 \u200b\ufeff \u0627\u0644\u0639\u0631\u0628\u064a\u0629",
)
ACTING = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2066-\u2069\ufeff]")


def rollouts(update: int, seed: int, hostile: bool = False) -> list[dict[str, Any]]:
    """Random walks in a house of five rooms, three tasks of four; prompts hold the last room, so they differ."""
    rng = np.random.default_rng(seed)
    attack = [*ATTACKS] if hostile else [""]
    rows: list[dict[str, Any]] = []
    for task in range(3):
        for walker in range(4):
            length = int(rng.integers(2, 7))
            won = bool(rng.integers(2))
            rooms = ["hall", *(f"room {number}" for number in rng.integers(0, 5, length))]
            for step in range(length):
                end = step == length - 1
                text = attack[(len(rows)) % len(attack)]
                before = rooms[step - 1] if step else "nothing"
                group = f"{update}/{attack[task % len(attack)]}task {task}"
                rows.append(
                    {
                        "group": group,
                        "trajectory": f"{group}#{attack[walker % len(attack)]}{walker}",
                        "step": step,
                        "task_type": f"walk{attack[walker % len(attack)]}",
                        "observation": f"{rooms[step]}{attack[0] if hostile else ''}" + (text if step % 2 else ""),
                        "prompt": f"before: {before}\nnow: {rooms[step]}\n{text}",
                        "response": f"I go to {rooms[step + 1]}. {text}",
                        "action": f"go to {rooms[step + 1]}{text}",
                        "fault": text,
                        "next_observation": None,
                        "reward": 10.0 if won and end else 0.0,
                        "won": won and end,
                        "penalty": 0.1 if rng.integers(5) == 0 else 0.0,
                        "terminated": end and won,
                        "truncated": end and not won,
                    }
                )
    return rows


class Watched:
    """A page that notes whatever a page should not do."""

    def __init__(self, browser: Any, address: str, scheme: str = "light") -> None:
        self.page = browser.new_page(viewport={"width": 1280, "height": 900}, color_scheme=scheme)
        self.address = address
        self.noted: list[str] = []
        self.page.on("console", lambda message: self.noted.append(f"{message.type}: {message.text}"))
        self.page.on("pageerror", lambda error: self.noted.append(f"error: {error}"))
        self.page.on("dialog", lambda dialog: self.noted.append(f"dialog: {dialog.message}"))
        self.page.on("request", self._request)
        self.page.goto(address)
        self.page.wait_for_selector("#main[data-view]")

    def wait_for(self, script: str, arg: Any = None) -> None:
        """Waits until `script` says true, asked by the clock: a page that nobody sees need not draw frames."""
        self.page.wait_for_function(script, arg=arg, polling=50)

    def _request(self, request: Any) -> None:
        if request.url.split("#")[0] != self.address.split("#")[0]:
            self.noted.append(f"request: {request.url}")

    def open(self, view: str, link: str) -> None:
        self.page.evaluate("link => { location.hash = link }", link)
        self.wait_for("() => document.getElementById('main').dataset.link === location.hash")
        assert self.page.get_attribute("#main", "data-view") == view

    def wait_for_count(self, selector: str, count: int) -> None:
        """Waits until so many elements are there: what an event or a chart brings comes after the action that asked."""
        self.wait_for("([selector, count]) => document.querySelectorAll(selector).length === count", [selector, count])

    def wait_until_no_wider_than(self, width: int) -> None:
        """Waits until the page fits: charts follow the window a moment later."""
        self.wait_for("width => document.documentElement.scrollWidth <= width", width)

    def figures(self, selector: str, name: str = "data-value") -> list[float]:
        values = self.page.eval_on_selector_all(selector, f"all => all.map(one => one.getAttribute('{name}'))")
        return [float(value) for value in values]


def opened(browser: Any, report: Report, folder: Path) -> Watched:
    """The report as a page that is open."""
    path = folder / "report.html"
    path.write_text(fitting_page(report)[0], encoding="utf-8")
    return Watched(browser, path.as_uri())


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("plain")
    for update in (1, 2):
        write_rows(folder / f"{update:05d}.jsonl", rollouts(update, seed=update))
    page, _ = fitting_page(build_report(folder))
    path = folder / "report.html"
    path.write_text(page, encoding="utf-8")
    return folder, path


@pytest.fixture(scope="module")
def watched(browser: Any, plain: tuple[Path, Path]) -> Iterator[Watched]:
    page = Watched(browser, plain[1].as_uri())
    yield page
    assert page.noted == []


def library(folder: Path, update: int) -> tuple[Any, dict[str, Any]]:
    """The batch of an update and every estimator's advantages, straight from the library."""
    table = read_rollouts(folder / f"{update:05d}.jsonl")
    columns = table.rename_columns([{"won": "success"}.get(name, name) for name in table.column_names])
    batch = step_batch_from_table(columns)
    return batch, {e.key: compute_advantages(batch, e.name, 0.95, **e.options) for e in report_estimators(NO_TRAINING)}


def step_link(row: dict[str, Any]) -> str:
    return f"#step={row['group'].split('/')[0]}/{quote(row['trajectory'], safe='')}/{row['step']}"


def test_the_overview_shows_the_figures_of_the_library(watched: Watched, plain: tuple[Path, Path]) -> None:
    watched.open("overview", "#overview")
    watched.page.wait_for_selector("#chart-weight svg")
    batch, advantages = library(plain[0], 2)
    summary = summarise_levels(batch, advantages["paper"])
    shown = watched.page.eval_on_selector_all(
        "#levels td[data-figure=usable_share]", "all => all.map(c => c.innerText)"
    )
    assert shown == [f"{100 * level.usable_share:.1f} %" for level in summary.levels]
    shown = watched.page.eval_on_selector_all("#levels td[data-figure=size_p50]", "all => all.map(c => c.innerText)")
    assert shown == [str(level.size_p50) for level in summary.levels]
    both = sum(len(library(plain[0], update)[0]) for update in (1, 2))
    assert f"{both} steps of 6 tasks in 2 updates. All are in the report." in watched.page.inner_text("#counts")
    success = watched.page.eval_on_selector_all(
        "#chart-success [aria-roledescription=point]", "all => all.map(one => one.getAttribute('aria-label'))"
    )
    shares = [
        np.unique(batch.trajectory[batch.success]).size / 12 for batch in (library(plain[0], u)[0] for u in (1, 2))
    ]
    assert [float(label.split("success: ")[1].rstrip("%")) for label in success] == pytest.approx(
        [100 * share for share in shares], abs=0.5
    )


def test_a_task_shows_its_transitions_and_trajectories(watched: Watched, plain: tuple[Path, Path]) -> None:
    batch, advantages = library(plain[0], 1)
    watched.open("task", "#task=1/1%2Ftask%201")
    graph = transition_graph(batch)
    task = batch.labels["group"].index("1/task 1")
    at = np.flatnonzero(batch.group == task)
    nodes = np.unique(graph.source_N[at])
    visits = [int(np.sum(graph.source_N[at] == node)) for node in nodes]
    means = [float(np.mean(advantages["paper"].returns[at][graph.source_N[at] == node])) for node in nodes]
    assert sorted(watched.figures("svg.graph circle.state", "data-visits")) == sorted(visits)
    shown = sorted(watched.figures("svg.graph circle.state", "data-mean"))
    assert shown == pytest.approx(sorted(means), rel=1e-5, abs=1e-6)
    assert sum(watched.figures("svg.graph path.edge", "data-times")) == len(at)
    assert watched.page.locator("table.turns td.turn").count() == len(at)


@pytest.mark.parametrize("key", ["paper", "verl", "pooled", "gigpo", "grpo"])
def test_a_step_shows_every_level_as_the_library_has_it(watched: Watched, plain: tuple[Path, Path], key: str) -> None:
    rows = rollouts(1, seed=1)
    _, advantages = library(plain[0], 1)
    computed = advantages[key]
    for row in (5, 11, 17):
        watched.open("step", f"{step_link(rows[row])}&estimator={key}")
        page = watched.page
        watched.wait_for(
            "text => document.getElementById('fact-return').innerText === text",
            f"{computed.returns[row]:.6g}".replace("-", "−"),
        )
        assert page.inner_text("#fact-return") == f"{computed.returns[row]:.6g}".replace("-", "−")
        levels = [*([computed.episode] if computed.episode else []), *computed.levels]
        assert page.locator("section.level").count() == len(levels)
        for level in levels:
            name = "episode" if level.k is None else str(level.k)
            section = f"#level-{name}"
            shown = {
                figure: watched.figures(f"{section} b[data-figure={figure}]")
                for figure in ("advantage", "weight", "contribution", "size", "mean", "std")
            }
            expected = {"advantage": level.advantage[row], "weight": level.weight[row]}
            expected["contribution"] = level.advantage[row] * level.weight[row]
            if level.size[row]:
                expected |= {"size": level.size[row], "mean": level.mean[row], "std": level.std[row]}
            for figure, value in expected.items():
                assert shown[figure] == [pytest.approx(value, rel=1e-5, abs=1e-6)], (key, name, figure)
            assert ("Not used" in page.inner_text(section)) == bool(level.unused[row])
            if level.k is not None and level.size[row] > 1:
                rest = page.locator(f"{section} table.members tbody tr").count()
                assert rest == min(int(level.size[row]) - 1, 12)


def test_prompts_are_marked_where_they_differ(watched: Watched, plain: tuple[Path, Path]) -> None:
    rows = rollouts(1, seed=1)
    batch, advantages = library(plain[0], 1)
    group = advantages["paper"].levels[0].group
    row = next(
        row for row in range(len(rows)) if len({rows[i]["prompt"] for i in np.flatnonzero(group == group[row])}) > 1
    )
    watched.open("step", step_link(rows[row]) + "&estimator=paper")
    watched.page.wait_for_selector("#level-0 .diff ins")
    diff = watched.page.locator("#level-0 .diff").first
    gone = "".join(diff.locator("del").all_inner_texts())
    assert gone
    assert gone.split()[0] in rows[row]["prompt"]
    assert len(batch) == len(rows)


def test_estimators_are_compared_with_the_largest_disagreement_first(
    watched: Watched, plain: tuple[Path, Path]
) -> None:
    watched.open("compare", "#compare")
    spreads = watched.figures("#disagreements td[data-value]:not([data-key])")
    assert spreads == sorted(spreads, reverse=True)
    values = {key: [] for key in library(plain[0], 1)[1]}
    for update in (1, 2):
        for key, computed in library(plain[0], update)[1].items():
            values[key].append(computed.values)
    scaled = []
    for parts in values.values():
        column = np.concatenate(parts)
        scaled.append(column / np.sqrt(np.mean(column**2)))
    spread = np.max(scaled, axis=0) - np.min(scaled, axis=0)
    assert spreads[0] == pytest.approx(spread.max(), rel=1e-5)
    count = int(np.count_nonzero(spread > 1e-6))
    assert len(spreads) == min(25, count)
    assert watched.page.inner_text(".pager span") == f"1–25 of {count}"
    watched.page.get_by_role("button", name="last").click()
    assert watched.page.inner_text(".pager span").endswith(f"{count} of {count}")
    assert watched.figures("#disagreements td[data-value]:not([data-key])")[-1] <= spreads[-1]
    paper, grpo = np.sign(np.concatenate(values["paper"])), np.sign(np.concatenate(values["grpo"]))
    opposite = np.mean((paper * grpo)[paper * grpo != 0] < 0)
    assert watched.figures('#signs td[data-pair="paper grpo"]') == [pytest.approx(opposite)]


def test_context_consistency_is_that_of_the_library(watched: Watched, plain: tuple[Path, Path]) -> None:
    watched.open("consistency", "#consistency")
    levels = []
    for update in (1, 2):
        batch, advantages = library(plain[0], update)
        levels.append([level.counts for level in prompt_consistency(batch, advantages["paper"], "mean_std_norm")])
    total = [
        [getattr(a, name) + getattr(b, name) for a, b in zip(*levels, strict=True)]
        for name in ("steps", "grouped_steps")
    ]
    shares = [part / whole for part, whole in zip(*total, strict=True)]
    assert watched.figures('#consistency td[data-figure="steps"]') == pytest.approx(shares)


def test_keys_and_search_reach_everything(watched: Watched) -> None:
    page = watched.page
    watched.open("overview", "#overview")
    page.keyboard.press("4")
    page.wait_for_selector("#main[data-view=compare]")
    page.keyboard.press("/")
    page.keyboard.type("won:yes update:2 room")
    page.keyboard.press("Enter")
    page.wait_for_selector("#main[data-view=find]")
    rows = rollouts(2, seed=2)
    winners = {row["trajectory"] for row in rows if row["won"]}
    found = sum(
        row["trajectory"] in winners and "room" in row["prompt"] + row["action"] + row["observation"] for row in rows
    )
    assert page.inner_text("#found").startswith(f"{found} steps")
    page.keyboard.press("j")
    assert page.evaluate("document.activeElement.tagName") == "A"
    page.keyboard.press("Enter")
    page.wait_for_selector("#main[data-view=task]")
    page.keyboard.press("3")
    page.wait_for_selector("#main[data-view=step]")
    before = page.url
    page.keyboard.press("ArrowRight")
    watched.wait_for(
        "before => location.href !== before && document.getElementById('main').dataset.link === location.hash",
        before,
    )
    assert page.inner_text(".strip a[aria-current]") == "1"


def test_dark_mode_has_its_own_colours(browser: Any, plain: tuple[Path, Path]) -> None:
    dark = Watched(browser, plain[1].as_uri(), scheme="dark")
    assert dark.page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(20, 23, 28)"
    dark.page.wait_for_selector("#chart-weight svg text")
    assert dark.noted == []


def test_nothing_in_any_field_acts(browser: Any, tmp_path: Path) -> None:
    rows = rollouts(1, seed=3, hostile=True)
    folder = tmp_path / "attack <script>window.acted = 1<"
    folder.mkdir()
    damaged = {**rows[0], "trajectory": f"lost {ATTACKS[0]}", "reward": ATTACKS[2]}
    write_rows(folder / "00001.jsonl", [*rows, damaged])
    watched = opened(browser, build_report(folder), tmp_path)
    links = ["#overview", "#find=", f"#find={quote(ATTACKS[0])}", f"#task={ATTACKS[1]}", "#compare", "#consistency"]
    links += [f"#task=1/{quote(row['group'], safe='')}" for row in rows if row["step"] == 0][::4]
    links += [step_link(row) + "&estimator=pooled" for row in rows[:24]]
    for link in links:
        watched.open(link[1:].split("=")[0], link)
        text = watched.page.evaluate("document.documentElement.innerText")
        assert not ACTING.search(text), link
        titles = watched.page.eval_on_selector_all("[title], title", "all => all.map(e => e.title || e.textContent)")
        assert not any(ACTING.search(title) for title in titles), link
        assert watched.page.locator("main script, main img, main iframe, main style, main object").count() == 0
        assert watched.page.locator("[onload], [onerror], a[href^='javascript']").count() == 0
        assert watched.page.evaluate("window.acted") is None
    assert "<script>window.acted = 1</script>" in text  # seen, as the text that it is
    assert "U+202E" in watched.page.evaluate("document.body.innerText") or "U+001B" in text
    assert watched.noted == []


def test_the_policy_would_stop_what_got_through(browser: Any, plain: tuple[Path, Path]) -> None:
    page = Watched(browser, plain[1].as_uri()).page
    attempts = {
        "document.body.innerHTML = '<img src=x onerror=\"window.acted=1\">'": "TrustedHTML",
        "document.write('<script>window.acted=1</scr' + 'ipt>')": "TrustedHTML",
        "document.createElement('script').text = 'window.acted=1'": "TrustedScript",
        "setTimeout('window.acted=1', 0)": "TrustedScript",
    }
    for code, reason in attempts.items():
        outcome = page.evaluate(
            f"(() => {{ try {{ {code}; return 'done' }} catch (error) {{ return String(error) }} }})()"
        )
        assert outcome != "done", code
        assert reason in outcome
    assert page.evaluate("window.acted") is None


def test_a_page_of_20_000_steps_is_small_enough_and_opens(browser: Any, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    rows = []
    for task in range(100):
        for walker in range(8):
            for step in range(25):
                room, noise = int(rng.integers(12)), " ".join(map(str, rng.integers(0, 9999, 12)))
                names = {"group": f"g{task}", "trajectory": f"g{task}#{walker}", "step": step}
                said = {"observation": f"room {room} of house {task}", "prompt": f"long template\n{noise}\nroom {room}"}
                rows.append({**names, **said, "response": noise, "action": f"go {room}", "reward": float(step == 24)})
    path = write_rows(tmp_path / "00001.jsonl", rows)
    page, report = fitting_page(build_report(path))
    assert len(page.encode()) <= MAX_BYTES
    assert report.sampled_steps == len(rows) == 20_000
    smaller, thinned = fitting_page(report, limit=1_600_000)
    assert len(smaller.encode()) <= 1_600_000
    assert 0 < thinned.sampled_steps < 20_000
    assert thinned.sampled_steps % 200 == 0  # whole tasks
    path = tmp_path / "small.html"
    path.write_text(smaller, encoding="utf-8")
    watched = Watched(browser, path.as_uri())
    assert "The metrics count all of them" in watched.page.inner_text("#counts")
    assert watched.noted == []


def test_the_task_view_opens_where_trajectories_ended_differently(browser: Any, plain: tuple[Path, Path]) -> None:
    page = Watched(browser, plain[1].as_uri()).page
    page.keyboard.press("2")
    page.wait_for_selector("#main[data-view=task]")
    outcomes = page.locator("table.turns thead").inner_text()
    assert "not won" in outcomes
    assert "✓ won" in outcomes


@pytest.mark.parametrize("width", [390, 1280])
def test_no_view_is_wider_than_the_window(browser: Any, plain: tuple[Path, Path], width: int) -> None:
    watched = Watched(browser, plain[1].as_uri())
    watched.page.set_viewport_size({"width": width, "height": 800})
    for key, view in zip("12345", ("overview", "task", "step", "compare", "consistency"), strict=True):
        watched.page.keyboard.press(key)
        watched.wait_for("view => document.getElementById('main').dataset.view === view", view)
        watched.page.wait_for_timeout(250)  # charts that are drawn late may be too wide
        watched.wait_until_no_wider_than(width)


def test_nothing_is_squeezed_or_cut_on_a_telephone(browser: Any, plain: tuple[Path, Path]) -> None:
    watched = Watched(browser, plain[1].as_uri())
    page = watched.page
    page.set_viewport_size({"width": 390, "height": 500})
    page.keyboard.press("?")
    assert page.evaluate("document.getElementById('help').scrollTop") == 0  # its button, which has the focus, is below
    page.keyboard.press("Escape")
    watched.open("compare", "#compare")
    page.wait_for_selector("#disagreements td.said")
    narrowest = "all => Math.min(...all.map(one => one.clientWidth))"
    assert page.eval_on_selector_all("#disagreements td.said", narrowest) >= 130
    watched.open("step", step_link(rollouts(1, seed=1)[5]) + "&estimator=paper")
    page.wait_for_selector("#chart-waterfall svg .mark-text text")
    ends = "all => all.map(one => one.getBoundingClientRect().right)"
    labels = page.eval_on_selector_all("#chart-waterfall svg .mark-text text", ends)
    assert max(labels) <= page.eval_on_selector_all("#chart-waterfall svg", ends)[0]
    assert watched.noted == []


def test_headings_stand_over_their_figures_and_marks_of_an_axis_differ(watched: Watched) -> None:
    watched.open("overview", "#overview")
    assert watched.page.locator("#levels th.figure").count() == 20
    watched.page.wait_for_selector("#chart-weight svg")
    axes = watched.page.eval_on_selector_all(
        ".charts svg .role-axis-label",
        "all => all.map(axis => [...axis.querySelectorAll('text')].map(t => t.textContent))",
    )
    assert len(axes) >= 12
    assert all(len(set(marks)) == len(marks) for marks in axes), axes


def test_every_chart_says_what_it_shows_and_lists_its_values(watched: Watched) -> None:
    watched.open("overview", "#overview")
    drawn = watched.page.locator(".charts [role=img]").all()
    labels = [element.get_attribute("aria-label") for element in drawn]
    assert len(labels) >= 6
    assert all(" at update 2." in label for label in labels)
    watched.page.locator(".charts figure summary").first.click()
    watched.wait_for_count(".charts figure:first-of-type tbody tr", 2)  # made when it is asked for


def test_a_report_without_steps_opens(browser: Any, tmp_path: Path) -> None:
    metrics = ({"update": 1, "success": 0.5, "reward": 5.0, "episode_length": 3.0},)
    watched = opened(browser, build_report(tmp_path, Training(metrics=metrics)), tmp_path)
    watched.page.wait_for_selector("#chart-success svg")
    assert "contains no rollouts" in watched.page.inner_text("#notices")
    for link in ("#compare", "#consistency", "#find=", "#step=1/a/0", "#task=1/a"):
        watched.open(link[1:].split("=")[0], link)
    assert watched.noted == []


def test_single_things_and_zeros_are_written_as_such(browser: Any, tmp_path: Path) -> None:
    """The pooled weight of level 1 is 0, and the losing step's advantage there is negative."""
    usual = {"group": "g", "step": 0, "observation": "hall", "prompt": "p"}
    rows = [{**usual, "trajectory": name, "reward": reward} for name, reward in (("a", 1), ("b", 0), ("c", 0))]
    rows.append({**usual, "trajectory": "c", "step": 1, "observation": "cellar", "reward": 0})
    watched = opened(browser, build_report(write_rows(tmp_path / "00001.jsonl", rows)), tmp_path)
    assert watched.page.inner_text("#counts").startswith("4 steps of 1 task in 1 update.")
    watched.open("step", "#step=1/b/0&estimator=pooled")
    assert "× weight 0 = 0" in (shown := watched.page.inner_text("#level-1"))
    assert "−0 " not in f"{shown} "
    watched.open("step", "#step=1/c/1")
    assert "1 step of 1 trajectory; mean 0" in watched.page.inner_text("#level-0")
    watched.open("step", "#step=1/b/-1")
    assert watched.page.inner_text("h1") == "This step is not in the report"
    assert watched.noted == []


def initial(visit: Visit) -> str:
    return f"the initial {visit.observation[0]}"


def test_a_state_key_is_shown_beside_the_observation(browser: Any, tmp_path: Path) -> None:
    rows = rollouts(1, seed=1)
    report = build_report(write_rows(tmp_path / "00001.jsonl", rows), state=f"{__name__}:initial")
    watched = opened(browser, report, tmp_path)
    assert watched.page.inner_text("#matching") == report.matching[0]
    watched.open("step", step_link(rows[5]))
    boxes = watched.page.locator(".box").all_inner_texts()
    room = rows[5]["observation"]
    assert boxes[0].split("\n")[-1] == room
    assert boxes[1].split("\n")[-1] == f"the initial {room[0]}"
    assert watched.noted == []

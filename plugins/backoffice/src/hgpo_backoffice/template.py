"""The compact template for the back office, for tiny models."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hgpo.agents.prompts import AgentContext, CompactTemplate, ParsedAction, parse_bare
from hgpo.tool_calls import ToolCall, ToolCallError, parse_action, parse_object
from hgpo_backoffice.tools import SCHEMAS

_MESSAGE = "The customer writes: "
_PARAMETERS: Mapping[str, Mapping[str, Any]] = {tool["name"]: tool["parameters"]["properties"] for tool in SCHEMAS}


class BackofficeCompactTemplate(CompactTemplate):
    """The customer's message, what the remembered results say, and the last call with its result, in one line.

    An order is described once, by its newest result, so `agent.history_length` has to cover the episode. Calls are the
    tool's name and the values of its arguments: `refund w100 20`.
    """

    def render(self, context: AgentContext) -> str:
        """The prompt; results that are no JSON objects are left out."""
        parts = [f"case : {context.task.rpartition(_MESSAGE)[2]}"]
        facts: dict[str, str] = {}
        calls = [shortened(action) for _, action in context.history]
        results = [_result(text) for text in (*(seen for seen, _ in context.history[1:]), context.observation)]
        for call, result in zip(calls, results, strict=False):
            facts |= {call: call} if call.startswith("decline_request ") and "error" not in result else _facts(result)
        if calls:
            facts["last"] = f"last : {calls[-1]} {results[-1].get('error', '')}"
        return " ".join(" ".join([*parts, *facts.values()]).split())

    def parse(self, response: str) -> ParsedAction:
        """A call from its short form; other text is left to the environment, which answers with an error."""
        bare = parse_bare(response)
        if not bare.valid:
            return bare
        name, *values = bare.action.split(" ")
        parameters = _PARAMETERS.get(name)
        if parameters is None:
            return bare
        values = " ".join(values).split(" ", len(parameters) - 1)  # the last value may have blanks
        if len(values) < len(parameters) or not values[-1]:
            return ParsedAction(bare.action, False, "missing argument")
        arguments = {
            key: int(value) if schema.get("type") == "integer" and value.isdecimal() and len(value) < 9 else value
            for (key, schema), value in zip(parameters.items(), values, strict=True)
        }
        return ParsedAction(ToolCall(name, arguments).action, True)

    def respond(self, action: str) -> str:
        """The short form of a call."""
        return shortened(action)


def shortened(action: str) -> str:
    """The short form of an action; other texts stay as they are."""
    try:
        call = parse_action(action)
    except ToolCallError:
        return action
    return " ".join([call.name, *map(str, call.arguments.values())])


def _result(text: str) -> dict[str, Any]:
    try:
        return parse_object(text)
    except ToolCallError:
        return {}


def _facts(result: Mapping[str, Any]) -> dict[str, str]:
    """What a result says, by the record that it describes."""
    if "items" in result:
        days = "" if result["days"] is None else f"{result['days']} days"
        items = [  # the arguments of a return follow the name that a request has
            f"{one['name']} {result['id']} {one['product_id']} for {one['total']} {'returned' * one['returned']}"
            for one in result["items"]
        ]
        refunded = "refunded" * bool(result["refunded"])
        order = f"; {result['id']} {result['status']} {days} to {result['address']} , {' , '.join(items)} {refunded}"
        return {result["id"]: order}
    if "products" in result:
        products = [f"{one['colour']} {one['kind']} {one['id']} {one['stock']}" for one in result["products"]]
        return {result["products"][0]["kind"]: f"; {' , '.join(products)}"}
    if "verified" in result:
        return {"customer": f"; verified {' '.join(result['orders'])}" if result["verified"] else "; failed"}
    if "customer_id" in result:
        return {"customer": f"; {result['customer_id']}"}
    said = str(result.get("customer", ""))
    return {said.split()[1]: said} if said.startswith("My ") else {}


BACKOFFICE_COMPACT = BackofficeCompactTemplate()

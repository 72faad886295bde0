"""Questions of `motley plan`: what would the planner say to these objects, or to a bare model, on these cards?"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from motley_operator.api.document import InputError
from motley_operator.api.read import parse_service, read_services
from motley_operator.planning.cards import find_cards
from motley_operator.planning.plan import locate_model, place_service, plan_cards
from motley_operator.planning.selection import CardPool
from motley_operator.planning.serving import serving_of
from motley_operator.planning.support import require_supported
from motley_operator.render.arguments import model_uri
from motley_planner.plan import Plan
from motley_planner.request import Auto, PlanRefusedError, Ratio


@dataclass(frozen=True, slots=True)
class PlanQuestion:
    """What is asked beside the model: cards (see ``find_cards``), shares and the longest sequence."""

    cpu: str | None = None
    inventory: Path | None = None
    ratio: str | None = None
    context_length: int | None = None


def plan_file(path: Path, question: PlanQuestion) -> dict[str, Plan]:
    """Plans of every group of every object in a file, by ``service/group``. Raises InputError."""
    for flag, value in (("--ratio", question.ratio), ("--context-length", question.context_length)):
        if value is not None:
            raise InputError(f"{flag}: goes with --model; an object says it itself (spec.topology, spec.model)")
    pool = CardPool(find_cards(question.cpu, question.inventory))
    plans: dict[str, Plan] = {}
    for service in read_services(path):
        require_supported(service)
        model = locate_model(model_uri(service), weights=False)
        for group in place_service(service, model.facts, pool):
            plans[f"{service.metadata.name}/{group.name}"] = group.plan
    return plans


def plan_model(uri: str, question: PlanQuestion) -> Plan:
    """Plan of a bare model on all cards. Raises InputError, in the words of the engine's flags."""
    ratio = parse_ratio(question.ratio)
    cards = find_cards(question.cpu, question.inventory)
    facts = locate_model(uri, weights=False).facts
    spec: dict[str, object] = {"uri": "file:///asked-for"}
    if question.context_length is not None:
        spec["maxModelLength"] = question.context_length
    # the sizes of an object that says nothing else
    document = {
        "apiVersion": "motley.dev/v1alpha1",
        "kind": "InferenceService",
        "metadata": {"name": "model"},
        "spec": {"model": spec},
    }
    serving = serving_of(parse_service(document, "--model"), facts, cards[0].kind)
    try:
        return plan_cards(facts, cards, serving, ratio)
    except PlanRefusedError as error:
        raise InputError(str(error)) from error


def parse_ratio(text: str | None) -> Ratio | Auto:
    """``auto`` or one positive integer per rank. Raises InputError naming the entry at fault."""
    if text is None or text.strip() == "auto":
        return "auto"
    weights = []
    for entry in text.split(","):
        number = entry.strip()
        if not number.isascii() or not number.isdecimal() or int(number) < 1:
            raise InputError(f"--ratio: {entry!r} is not a share; give auto, or positive whole numbers such as 2,1")
        weights.append(int(number))
    return tuple(weights)

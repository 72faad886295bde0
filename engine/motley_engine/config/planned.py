"""A replica whose plan was made elsewhere: checked against what this engine can run and what this machine has."""

from __future__ import annotations

from pathlib import Path

from motley_engine.config.errors import ConfigError
from motley_engine.config.model import ModelConfig
from motley_engine.config.placement import ListCards, Placement, cards_of
from motley_engine.config.schema import EngineConfig
from motley_planner.inventory import Card, pretend_cards
from motley_planner.plan import Plan, PlanError, ReplicaPlan

MIB = 1 << 20
CPU_PREFIX = "CPU-"
"""Names of CPU ranks in plans."""


def read_plan(path: Path) -> Plan:
    """The plan in ``path``, its hash verified. ConfigError if it cannot be read or was changed."""
    try:
        return Plan.from_json(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, PlanError) as error:
        raise ConfigError(f"--plan: {path}: {error}; write it again with motley plan") from error


def planned_placement(
    plan: Plan, config: EngineConfig, model: ModelConfig, list_cards: ListCards
) -> tuple[ReplicaPlan, Placement]:
    """The replica ``--group`` names, and its cards on this machine. ConfigError if it cannot run here."""
    try:
        replica = plan.group(config.parallel.group)
    except PlanError as error:
        # its text starts with the field's name
        raise ConfigError(f"--{error}") from error
    _check_forms(replica, model)
    budgets = tuple(rank.budget_bytes // MIB for rank in replica.ranks)
    names = [rank.uuid for rank in replica.ranks]
    on_cpu = [name.startswith(CPU_PREFIX) for name in names]
    if any(on_cpu) and not all(on_cpu):
        raise ConfigError(f"--plan: mixes CPU and GPU ranks ({', '.join(names)}); plan again with one kind")
    if all(on_cpu):
        if config.parallel.device == "cuda":
            raise ConfigError("--device: cuda, but the plan's ranks run on CPU; drop one of them")
        return replica, Placement(pretend_cards(budgets), budgets)
    if config.parallel.device == "cpu":
        raise ConfigError(f"--device: cpu, but the plan's ranks run on {', '.join(names)}; drop one of them")
    present = cards_of(config, list_cards) or ()
    return replica, Placement(tuple(_card(name, present) for name in names), budgets)


def _card(uuid: str, present: tuple[Card, ...]) -> Card:
    for card in present:
        if card.uuid == uuid:
            return card
    listed = ", ".join(str(card) for card in present) or "none"
    raise ConfigError(f"--plan: needs GPU {uuid}, which this machine does not show; plan again; present: {listed}")


def _check_forms(replica: ReplicaPlan, model: ModelConfig) -> None:
    """ConfigError for what plans may hold but this engine does not run."""
    if len(replica.stages) != 1 or replica.stages[0].layers != (0, model.num_layers):
        spans = ", ".join(str(list(stage.layers)) for stage in replica.stages)
        raise ConfigError(
            f"--plan: stages {spans}; this engine runs the model's {model.num_layers} layers in one stage; plan again"
        )
    if replica.role != "unified":
        raise ConfigError(f"--plan: role {replica.role} is not served; plan a unified replica")
    if replica.kv_mode != "head":
        raise ConfigError(f"--plan: kv_mode {replica.kv_mode} is not served; plan with kv heads split")

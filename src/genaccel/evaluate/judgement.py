"""What judging a model leaves, in parts that add up, and what it needs to go on after an interruption. No torch here."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from genaccel.records import Figure

if TYPE_CHECKING:
    from genaccel.evaluate.journal import Journal


@dataclass(frozen=True)
class Resume:
    """Where an evaluation keeps what it has found, and all that its results depend on besides data and protocol.

    Without a folder nothing is kept on disk.
    """

    folder: Path | None = None
    identity: dict[str, Any] = field(default_factory=dict)

    def journal(self, protocol: str, *sha256: str) -> Journal:
        """The journal of one task, whose files have these hashes."""
        from genaccel.evaluate.journal import Journal

        return Journal(self.folder, {**self.identity, "protocol": protocol, "data": sha256})


@dataclass(frozen=True)
class Judgement:
    """Figures, what is needed to trace and to pair them, warnings; results by example; journals to be closed."""

    figures: tuple[Figure, ...] = ()
    details: dict[str, Any] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    examples: tuple[dict[str, Any], ...] = ()
    journals: tuple[Journal, ...] = ()

    def __add__(self, other: Judgement) -> Judgement:
        """Both together; tasks keep their own details."""
        tasks = self.details.get("tasks", {}) | other.details.get("tasks", {})
        return Judgement(
            self.figures + other.figures,
            self.details | other.details | ({"tasks": tasks} if tasks else {}),
            self.warnings + other.warnings,
            self.examples + other.examples,
            self.journals + other.journals,
        )

    def finish(self) -> None:
        """Call this when the record is written: what was kept for a restart goes."""
        for journal in self.journals:
            journal.close(finished=True)

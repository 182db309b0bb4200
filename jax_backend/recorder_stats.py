"""What a recorder counts."""

from dataclasses import dataclass


@dataclass
class RecorderStats:
    """Counts of one recorder."""

    operations: int = 0
    """Operations run, those inside graph executions included, without Init and Drop."""
    programs: int = 0
    """Executions of a compiled program."""
    reads: int = 0
    failures: int = 0
    program_cpu_s: float = 0.0
    """Processor time inside the executions: dispatch, and on a CPU what XLA computes in the thread that calls."""
    launcher_cpu_s: float = 0.0
    """Processor time of the thread that calls programs, where it is another than the one that records."""

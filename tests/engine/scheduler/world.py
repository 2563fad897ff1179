"""An engine core with a recording runner and all its clients, for tests that play random games.

Every step is checked as it happens: budget, seats, blocks, order. At the end every request must
have ended and every answer must be the one that its prompt alone determines.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from engine.config import SchedulerConfig
from engine.core import EngineCore
from engine.errors import RequestError
from engine.sampling_params import SamplingParams
from engine.scheduler import Scheduler, StepPlan
from engine.sequence import Sequence
from tests.engine.scheduler.recording_runner import RecordingRunner, expected_output

EOS = 3


@dataclass
class World:
    """received and ended are what the clients saw; ended is "refused" or the finish reason.

    stopped are the requests that their client ended, as at a stop string.
    """

    config: SchedulerConfig
    now_s: float = 0.0
    received: dict[str, list[int]] = field(default_factory=dict)
    ended: dict[str, str] = field(default_factory=dict)
    stopped: set[str] = field(default_factory=set)
    sequences: dict[str, Sequence] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.scheduler = Scheduler(self.config, frozenset({EOS}), self.clock)
        self.runner = RecordingRunner(self.config.block_size)
        self.core = EngineCore(self.scheduler, self.runner, self.clock)

    def clock(self) -> float:
        self.now_s += 0.001
        return self.now_s

    # -- moves -------------------------------------------------------------------------------

    def arrive(self, prompt: list[int], max_tokens: int | None, salt: str = "") -> None:
        request_id = f"r{len(self.sequences)}"
        sampling = SamplingParams(max_tokens=max_tokens)
        sequence = Sequence(request_id, prompt, sampling, self.now_s, salt)
        self.sequences[request_id] = sequence
        self.received[request_id] = []
        try:
            self.core.add_request(sequence)
        except RequestError as error:
            assert error.status == 400
            self.ended[request_id] = "refused"

    def abort(self, index: int) -> None:
        """Abort any request, whether it waits, runs or has gone."""
        self.core.abort(self._name(index))

    def stop(self, index: int) -> None:
        """End any request as the service does at a stop string."""
        if self.core.finish(self._name(index), "stop"):
            self.stopped.add(self._name(index))

    def interrupt(self, index: int) -> None:
        """Abort a request while the next step is in the runner."""
        self.runner.interrupt = lambda: self.abort(index)
        self.step()
        self.runner.interrupt = None

    def reconfigure(self, max_num_seqs: int, chunk_size: int, kv_blocks_cap: int) -> None:
        before = self.scheduler.config
        try:
            self.scheduler.reconfigure(
                max_num_seqs=max_num_seqs, chunk_size=chunk_size, kv_blocks_cap=kv_blocks_cap
            )
        except RequestError as error:
            assert error.param == "gpu_memory_utilization"
            assert self.scheduler.config is before

    def step(self) -> None:
        scheduler = self.scheduler
        running, used = list(scheduler.running), scheduler.pool.num_used
        num_plans = len(self.runner.plans)
        result = self.core.step()
        for plan in self.runner.plans[num_plans:]:
            self._check_plan(plan, running)
        assert scheduler.pool.num_used <= max(scheduler.pool.cap, used)
        for event in result.events:
            self.received[event.request_id].append(event.token_id)
        for done in result.finished:
            assert done.request_id not in self.ended, "ended twice"
            self.ended[done.request_id] = done.finish_reason
        scheduler.check_integrity()

    # -- judgement ---------------------------------------------------------------------------

    def drain(self) -> None:
        for _ in range(5_000):
            if not self.core.has_work:
                break
            self.step()
        self.step()  # what ended outside a step is reported by the next one
        assert not self.core.has_work, "requests never end"
        assert set(self.ended) == set(self.sequences)
        assert self.scheduler.pool.num_used == 0
        self._check_outputs()
        self._check_order()

    def _name(self, index: int) -> str:
        return f"r{index % max(1, len(self.sequences))}"

    def _check_plan(self, plan: StepPlan, running: list[Sequence]) -> None:
        limits = self.scheduler.config
        assert plan.num_scheduled_tokens == sum(len(s.token_ids) for s in plan.scheduled)
        assert plan.num_scheduled_tokens <= limits.chunk_size
        assert len(plan.scheduled) <= max(limits.max_num_seqs, len(running))
        if len(running) > limits.max_num_seqs:
            assert {s.seq_id for s in plan.scheduled} <= {s.seq_id for s in running}
        if running:
            assert running[0].seq_id not in plan.preempted_seq_ids, "the oldest lost its blocks"

    def _check_outputs(self) -> None:
        for request_id, sequence in self.sequences.items():
            received, reason = self.received[request_id], self.ended[request_id]
            asked = sequence.sampling.max_tokens
            whole = expected_output(sequence.prompt_token_ids, asked or len(received), EOS)
            assert received == whole[: len(received)]
            if reason == "length":
                assert len(received) == sequence.max_output_tokens
                assert asked in (None, len(received))
            if request_id not in self.stopped:
                assert (reason == "stop") == (EOS in received)

    def _check_order(self) -> None:
        started = [s.first_scheduled_s for s in self.sequences.values() if s.first_scheduled_s]
        assert started == sorted(started), "requests are first scheduled in order of arrival"

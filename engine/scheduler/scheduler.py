"""Continuous batching with chunked prefill under one token budget, and preemption by recompute.

`schedule` gives every running sequence what it lacks, those with one pending token first, and then
admits waiting ones; `postprocess` appends what was sampled. Invariants: at most max_num_seqs run,
at most chunk_size tokens are scheduled, the oldest running sequence always gets its blocks.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import replace

from engine.config import SchedulerConfig
from engine.errors import RequestError
from engine.kvcache.blocks import BlockPool
from engine.kvcache.manager import KVCacheManager
from engine.scheduler import admission, limits
from engine.scheduler.binding import binding_limit
from engine.scheduler.observations import Observations, TokenEvent
from engine.scheduler.plan import ScheduledSeq, StepOutput, StepPlan
from engine.scheduler.turn import event_of, reason_to_end, share_of
from engine.sequence import FinishReason, Sequence, SequenceStatus
from engine.stats import FinishedStats, PrefillStats


class Scheduler:
    """Decides every step. Single-threaded; the clock gives seconds and is handed in."""

    def __init__(
        self,
        config: SchedulerConfig,
        eos_token_ids: frozenset[int],
        clock: Callable[[], float],
    ) -> None:
        self.config = config
        self.eos_token_ids = eos_token_ids
        self.clock = clock
        self.pool = BlockPool(config.num_kv_blocks, config.kv_blocks_cap)
        self.kv = KVCacheManager(
            self.pool, config.block_size, enable_prefix_caching=config.enable_prefix_caching
        )
        self.waiting: deque[Sequence] = deque()
        self.running: list[Sequence] = []
        self._sequences: dict[str, Sequence] = {}
        self._next_seq_id = 0
        self._released: list[int] = []
        self._preempted: list[int] = []
        self._kv_blocked = False
        self._seen = Observations()

    # -- requests ----------------------------------------------------------------------------

    @property
    def has_work(self) -> bool:
        return bool(self.waiting or self.running)

    @property
    def num_unfinished(self) -> int:
        return len(self._sequences)

    def add(self, sequence: Sequence) -> None:
        """Queue a request, or raise RequestError: 400 impossible, 503 queue full."""
        if sequence.request_id in self._sequences:
            raise RequestError(
                f"request id {sequence.request_id!r} is in use", code="duplicate_request_id"
            )
        sequence.sampling.check()
        admission.check_prompt(sequence, self.config.max_model_len)
        limit = admission.output_limit(sequence, self.config, self.pool.cap)
        admission.check_queue(len(self.waiting), self.config.max_num_queued_reqs)
        sequence.max_output_tokens = limit
        sequence.seq_id = self._next_seq_id
        if sequence.queued_s is None:  # else it has waited for its turn to come here
            sequence.queued_s = self.clock()
        self._next_seq_id += 1
        self._sequences[sequence.request_id] = sequence
        self.waiting.append(sequence)

    def abort(self, request_id: str) -> bool:
        """End a request whose client is gone. False if it is not (or no longer) here."""
        return self.finish(request_id, "abort")

    def finish(self, request_id: str, reason: FinishReason) -> bool:
        """End a request from outside (a stop string, a disconnect), at any moment."""
        sequence = self._sequences.get(request_id)
        if sequence is None:
            return False
        if sequence.status is SequenceStatus.RUNNING:
            self.running.remove(sequence)
        else:
            self.waiting.remove(sequence)
        self._end(sequence, reason, self.clock())
        return True

    # -- one step ----------------------------------------------------------------------------

    def schedule(self) -> StepPlan | None:
        """The next step, or None when nothing can be computed now."""
        now_s = self.clock()
        budget = self.config.chunk_size
        shares: dict[int, ScheduledSeq] = {}
        self._kv_blocked = False
        budget = self._schedule_running(shares, budget)
        if not self._preempted:
            budget = self._admit_waiting(shares, budget, now_s)
        preempted, self._preempted = tuple(self._preempted), []
        if not shares and not preempted and not self._released:
            return None
        released, self._released = tuple(self._released), []
        return StepPlan(
            scheduled=tuple(shares.values()),
            num_scheduled_tokens=self.config.chunk_size - budget,
            binding_limit=binding_limit(
                preempted=bool(preempted),
                waiting=bool(self.waiting),
                kv_blocked=self._kv_blocked,
                kv_usage=self.kv.usage,
                seats_left=self.config.max_num_seqs - len(self.running),
                tokens_left=budget,
                chunk_size=self.config.chunk_size,
            ),
            preempted_seq_ids=preempted,
            released_seq_ids=released,
        )

    def postprocess(self, plan: StepPlan, output: StepOutput) -> list[TokenEvent]:
        """Count what was computed, append what was sampled, end what is done."""
        now_s = self.clock()
        events = []
        by_id = {sequence.seq_id: sequence for sequence in self.running}
        for share in plan.scheduled:
            sequence = by_id.get(share.seq_id)
            if sequence is None:  # ended while the step ran
                continue
            self._count_computed(sequence, share.num_scheduled_tokens)
            if share.prompt_targets:
                sequence.prompt_logprobs.append(output.prompt_logprobs[share.seq_id])
            if share.needs_sample:
                events.append(self._append(sequence, output, now_s))
        self.running = [s for s in self.running if s.status is SequenceStatus.RUNNING]
        return events

    def take_observations(self) -> Observations:
        seen, self._seen = self._seen, Observations()
        return seen

    # -- live changes ------------------------------------------------------------------------

    def reconfigure(
        self,
        *,
        max_num_seqs: int | None = None,
        chunk_size: int | None = None,
        kv_blocks_cap: int | None = None,
    ) -> None:
        """Change limits between two steps, all or none. Nothing running is harmed.

        Sequences above a lowered max_num_seqs drain; a KV cap below what is in use lets no block
        be taken until enough have come back, if need be by preemption. RequestError (400) when a
        limit cannot work, also when an admitted request would no longer fit into the KV pool.
        """
        cap = self.pool.cap if kv_blocks_cap is None else kv_blocks_cap
        config = replace(
            self.config,
            max_num_seqs=self.config.max_num_seqs if max_num_seqs is None else max_num_seqs,
            chunk_size=self.config.chunk_size if chunk_size is None else chunk_size,
            kv_blocks_cap=cap,
        )
        limits.check_limits(config)
        limits.check_cap(cap, self.kv, self._sequences.values())
        self.config = config
        self.pool.set_cap(cap)
        limits.follow_cap(config, cap, self._sequences.values())

    def reset_prefix_cache(self) -> None:
        self.pool.clear_cache()

    def check_integrity(self) -> None:
        """Raise AssertionError if blocks and block tables disagree."""
        self.pool.check_integrity(s.block_table for s in self._sequences.values())
        for sequence in self.waiting:
            if sequence.block_table or sequence.num_computed_tokens:
                raise AssertionError(f"waiting {sequence.request_id} holds blocks or computed KV")
        for sequence in self.running:
            if self.kv.blocks_for(sequence.num_computed_tokens) > len(sequence.block_table):
                raise AssertionError(f"running {sequence.request_id} lacks blocks of computed KV")
        if len(self.running) + len(self.waiting) != len(self._sequences):
            raise AssertionError("a request is neither waiting nor running, or both")

    # -- inside ------------------------------------------------------------------------------

    def _schedule_running(self, shares: dict[int, ScheduledSeq], budget: int) -> int:
        decoding = [s for s in self.running if s.num_pending_tokens == 1]
        catching_up = [s for s in self.running if s.num_pending_tokens > 1]
        for sequence in (*decoding, *catching_up):
            if budget == 0:
                break
            if sequence.status is not SequenceStatus.RUNNING:  # preempted a moment ago
                continue
            count = self._count_for(sequence, budget)
            while not self.kv.grow(sequence, sequence.num_computed_tokens + count):
                victim = self.running[-1]
                if given_back := shares.pop(victim.seq_id, None):
                    budget += given_back.num_scheduled_tokens
                self._preempt(victim)
                if victim is sequence:
                    break
            else:
                shares[sequence.seq_id] = share_of(sequence, count)
                budget -= count
        return budget

    def _admit_waiting(self, shares: dict[int, ScheduledSeq], budget: int, now_s: float) -> int:
        if not self.waiting:
            return budget
        promised = sum(self.kv.missing_blocks(sequence) for sequence in self.running)
        while self.waiting and budget > 0 and len(self.running) < self.config.max_num_seqs:
            sequence = self.waiting[0]
            prefix = self.kv.find_prefix(sequence)
            if not self.kv.fits(sequence, prefix, promised):
                self._kv_blocked = True
                break
            self.waiting.popleft()
            self.kv.take_prefix(sequence, prefix)
            count = self._count_for(sequence, budget)
            grown = self.kv.grow(sequence, sequence.num_computed_tokens + count)
            assert grown, "fits() has promised the blocks"
            self._start(sequence, now_s)
            shares[sequence.seq_id] = share_of(sequence, count)
            budget -= count
            promised += self.kv.missing_blocks(sequence)
        return budget

    def _count_for(self, sequence: Sequence, budget: int) -> int:
        cap = self.config.long_prefill_token_threshold or budget
        return min(sequence.num_pending_tokens, budget, cap)

    def _start(self, sequence: Sequence, now_s: float) -> None:
        """From waiting to running, its cached prefix taken: the first time, or again."""
        seen = self._seen
        if sequence.first_scheduled_s is None:
            sequence.first_scheduled_s = now_s
            sequence.num_cached_tokens = sequence.num_computed_tokens
            if self.config.enable_prefix_caching and not sequence.needs_prompt_logits:
                seen.prefix_query_tokens += sequence.num_prompt_tokens
                seen.prefix_hit_tokens += sequence.num_cached_tokens
        else:
            lost = sequence.num_dropped_tokens - sequence.num_computed_tokens
            seen.num_preempted_tokens += max(0, lost)
            sequence.num_dropped_tokens = 0
        sequence.status = SequenceStatus.RUNNING
        self.running.append(sequence)

    def _preempt(self, victim: Sequence) -> None:
        """Take the newest sequence's blocks; it waits at the front and computes again."""
        self.running.remove(victim)
        self._seen.num_preemptions += 1
        victim.num_preemptions += 1
        victim.num_dropped_tokens = victim.num_computed_tokens
        self.kv.release(victim)
        victim.num_computed_tokens = 0
        victim.prompt_logprobs.clear()
        victim.status = SequenceStatus.WAITING
        self.waiting.appendleft(victim)
        self._preempted.append(victim.seq_id)

    def _count_computed(self, sequence: Sequence, count: int) -> None:
        if sequence.first_token_s is None:
            sequence.num_prefill_computed_tokens += count
        sequence.num_computed_tokens += count
        self.kv.register_full_blocks(sequence)

    def _append(self, sequence: Sequence, output: StepOutput, now_s: float) -> TokenEvent:
        token_id = output.sampled[sequence.seq_id]
        sequence.token_ids.append(token_id)
        if sequence.first_token_s is None:
            sequence.first_token_s = now_s
            self._seen.prefilled.append(PrefillStats.of(sequence, now_s))
        else:
            assert sequence.last_token_s is not None
            self._seen.itl_s.append(now_s - sequence.last_token_s)
        sequence.last_token_s = now_s
        reason = reason_to_end(sequence, token_id, self.eos_token_ids)
        event = event_of(sequence, token_id, reason, output)
        if reason is not None:
            self._end(sequence, reason, now_s)
        return event

    def _end(self, sequence: Sequence, reason: FinishReason, now_s: float) -> None:
        sequence.status = SequenceStatus.FINISHED
        sequence.finish_reason = reason
        sequence.finished_s = now_s
        self.kv.release(sequence)
        del self._sequences[sequence.request_id]
        self._released.append(sequence.seq_id)
        self._seen.finished.append(FinishedStats.of(sequence, now_s))

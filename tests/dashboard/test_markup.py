"""The HTML pieces of the pages."""

from __future__ import annotations

from dashboard.markup import message


def test_a_message_sets_commands_as_code_and_escapes_them() -> None:
    shown = message("No study", "Run `tuner sweep <x>`, or wait")
    assert 'Run <span class="mono">tuner sweep &lt;x&gt;</span>, or wait' in shown
    assert "`" not in shown

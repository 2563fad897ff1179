"""A stored verification told again: compared anew, beside what was predicted and stored."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from storage import open_database
from tests.tuner.report.pages import text_of, whole
from tests.tuner.report.stored_studies import (
    AFTER,
    VERIFIED,
    broken,
    diagnose_first,
    loaded,
    pairs,
    store_verification,
)
from tuner.exchange.belonging import verified_by_study
from tuner.report.any_study import dict_of, lines_of, page_of, report_of
from tuner.report.studies import study_lines, study_list_lines
from tuner.report.verify import TITLES
from tuner.report.verify_study import VerifyReport


def told(path: Path) -> VerifyReport:
    found = report_of(loaded(path, "v"))
    assert isinstance(found, VerifyReport)
    return found


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> VerifyReport:
    path = tmp_path_factory.mktemp("verify") / "s.db"
    store_verification(path, pairs())
    diagnose_first(path, name="v")
    return told(path)


def test_predicted_and_realised_stand_beside_each_other(plain: VerifyReport) -> None:
    text = "\n".join(lines_of(plain))
    assert text.startswith("chunk_size 2048 → 256, judged by ttft_p95")
    assert "advice       4.interference: decodes are interrupted for less time" in text
    assert "predicted    ttft_p95 × 0.2 to 1: by arithmetic" in text
    assert "realised     ttft_p95 × 0.25 [" in text
    assert "2 interleaved pairs, same arrivals and prompts): better; as predicted" in text
    assert "node         4.interference critical → ok: cleared" in text
    assert "The advice holds: ttft_p95 is better" in text
    assert "ttft_p95<500ms: missed → met" in text
    assert "began as: tuner verify" in text


def test_the_page_shows_the_figure_that_decides_first(plain: VerifyReport) -> None:
    page = page_of(plain)
    moved = page.partition("<h2>What moved</h2>")[2].partition("</section>")[0]
    assert moved.index("<b>ttft_p95</b>") < moved.index("output_tps")
    assert moved.count('class="forest"') >= 4
    text = text_of(page)
    assert "✔ holds" in text
    assert "4.interference critical → ok: cleared" in text
    assert "Prefill interrupts decodes" in text
    whole(page, charts=page.count("<svg"))


def test_json_is_as_the_command_printed_it(plain: VerifyReport) -> None:
    found = json.loads(json.dumps(dict_of(plain)))
    assert (found["study"], found["outcome"], found["node"]) == ("v", "holds", "4.interference")
    assert found["realised"]["pairs"] == 2
    assert found["realised"]["prediction"] == "as predicted"
    assert found["predicted"]["ground"] == "by arithmetic"
    assert (found["node_before"], found["node_after"]) == ("critical", "ok")
    assert "output_tps" in found["side_effects"]


def test_an_answer_that_its_records_do_not_give_any_more_is_told(tmp_path: Path) -> None:
    store_verification(tmp_path / "s.db", pairs(), replace(VERIFIED, outcome="refuted"))
    report = told(tmp_path / "s.db")
    assert "its answer was 'The advice does not hold'" in "\n".join(lines_of(report))
    assert "its answer was" in text_of(page_of(report))


def test_one_that_was_stopped_shows_its_pairs_so_far(tmp_path: Path) -> None:
    store_verification(tmp_path / "s.db", pairs(1), None, state="stopped")
    report = told(tmp_path / "s.db")
    text = "\n".join(lines_of(report))
    assert "the study is stopped" in text
    assert "1 interleaved pair, no interval" in text
    assert "no prediction: none is stored" in text
    assert "Undecided: " in text
    assert '<span class="pill inconclusive big">? undecided</span>' in page_of(report)
    assert report.proof is not None
    assert report.proof.proposal.node == "4.interference"
    whole(page_of(report), charts=page_of(report).count("<svg"))


def test_what_was_never_compared_has_no_answer(tmp_path: Path) -> None:
    store_verification(tmp_path / "a.db", [], None, state="failed")
    text = text_of(page_of(told(tmp_path / "a.db")))
    assert "No answer: no data: the verification is failed and holds no measurement" in text
    store_verification(tmp_path / "b.db", pairs(1)[:1], None, state="stopped")
    report = told(tmp_path / "b.db")
    assert report.headline == "No answer: only the present setting was measured"
    assert dict_of(report)["outcome"] is None
    assert report.headline in "\n".join(lines_of(report))


def test_a_setting_that_fails_does_harm_and_says_why(tmp_path: Path) -> None:
    first, _ = pairs(1)
    fails = broken(AFTER, "out of memory", stage="confirm", at_s=20, seed=100)
    row = replace(VERIFIED, outcome="harmful", realised=None, predicted=None, node_after=None)
    store_verification(
        tmp_path / "s.db", [first, fails], row, result={"why_no_prediction": "nothing says"}
    )
    report = told(tmp_path / "s.db")
    text = "\n".join(lines_of(report))
    assert "The advice does harm: the new setting gives no result: out of memory" in text
    assert "advice     4.interference\n" in text
    assert "realised   no pair has a result on both sides" in text
    assert "no prediction: nothing says" in text
    page = text_of(page_of(report))
    assert "✘ harmful" in page
    assert "What moved" not in page


def test_the_list_of_studies_tells_what_the_verification_answered(tmp_path: Path) -> None:
    store_verification(tmp_path / "s.db", pairs(), result={"answer": "none_feasible"})
    with open_database(tmp_path / "s.db") as database:
        (study,) = database.list_studies()
        kept = verified_by_study(database)
    assert kept[study.id].outcome == VERIFIED.outcome
    assert study_list_lines([study], kept)[1].endswith(TITLES[VERIFIED.outcome])
    lines = study_lines(study, [], kept[study.id])
    told_as = [
        line.split(maxsplit=1)[1] for line in lines if line.startswith(("  answer", "  because"))
    ]
    assert told_as == ["The advice holds", "ttft_p95 is better"]

"""`tuner studies`: list what the database holds, or show one study and its measurements."""

from __future__ import annotations

import argparse

from tuner.cli.common import EXIT_DONE, add_database_option, add_output_options

NAME = "studies"
HELP = "list stored studies, or show one with its best configuration"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", nargs="?", help="study to show (default: list all)")
    add_database_option(parser)
    add_output_options(parser)


def run(args: argparse.Namespace) -> int:
    from storage import open_database
    from tuner.cli.common import print_json, print_lines
    from tuner.exchange.belonging import study_named, verified_by_study
    from tuner.report.studies import study_dict, study_lines, study_list_lines

    database = open_database(args.database, read_only=True)
    try:
        if args.name is None:
            studies = database.list_studies()
            if args.json:
                print_json([study_dict(study, []) for study in studies])
            else:
                print_lines(study_list_lines(studies, verified_by_study(database)))
            return EXIT_DONE
        study = study_named(database, args.name)
        measurements = database.list_measurements(study_id=study.id)
        if args.json:
            print_json(study_dict(study, measurements))
        else:
            verified = verified_by_study(database).get(study.id)
            print_lines(study_lines(study, measurements, verified))
        return EXIT_DONE
    finally:
        database.close()

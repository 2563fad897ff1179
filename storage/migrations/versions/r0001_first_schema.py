"""Studies, measurements, request records and findings.

Revision 0001, the first.
"""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    _study()
    _measurement()
    _request_records()
    _finding()


def downgrade() -> None:
    for table in ("finding", "request_records", "measurement", "study"):
        op.drop_table(table)


def _study() -> None:
    op.create_table(
        "study",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("created_at_s", sa.Float(53), nullable=False),
        sa.Column("updated_at_s", sa.Float(53), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("command", sa.Text()),
        sa.Column("target", sa.JSON()),
        sa.Column("workload", sa.JSON()),
        sa.Column("slos", sa.Text()),
        sa.Column("objective", sa.Text()),
        sa.Column("space", sa.JSON()),
        sa.Column("seed", sa.BigInteger()),
        sa.Column("budget", sa.JSON()),
        sa.Column("result", sa.JSON()),
        sa.Column("optuna_study_name", sa.Text()),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_study")),
        sa.UniqueConstraint("name", name=op.f("uq_study_name")),
        sa.CheckConstraint(
            "state IN ('running', 'done', 'stopped', 'failed')", name=op.f("ck_study_state")
        ),
    )


def _measurement() -> None:
    op.create_table(
        "measurement",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("study_id", sa.Integer()),
        sa.Column("trial_number", sa.Integer()),
        sa.Column("stage", sa.Text(), nullable=False),
        sa.Column("config", sa.JSON(), nullable=False),
        sa.Column("workload", sa.JSON()),
        sa.Column("slos", sa.Text()),
        sa.Column("seed", sa.BigInteger()),
        sa.Column("started_at_s", sa.Float(53), nullable=False),
        sa.Column("duration_s", sa.Float(53)),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("failure_kind", sa.Text()),
        sa.Column("failure_reason", sa.Text()),
        sa.Column("summary", sa.JSON()),
        sa.Column("verdict", sa.JSON()),
        sa.Column("server", sa.JSON()),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_measurement")),
        sa.ForeignKeyConstraint(
            ["study_id"],
            ["study.id"],
            name=op.f("fk_measurement_study_id_study"),
            ondelete="CASCADE",
        ),
        sa.CheckConstraint(
            "stage IN ('baseline', 'sweep', 'search', 'confirm', 'bench')",
            name=op.f("ck_measurement_stage"),
        ),
        sa.CheckConstraint(
            "state IN ('ok', 'failed', 'invalid', 'aborted')", name=op.f("ck_measurement_state")
        ),
        sa.CheckConstraint(
            "failure_kind IN ('configuration', 'transient')",
            name=op.f("ck_measurement_failure_kind"),
        ),
    )
    op.create_index(op.f("ix_measurement_study_id"), "measurement", ["study_id", "started_at_s"])


def _request_records() -> None:
    op.create_table(
        "request_records",
        sa.Column("measurement_id", sa.Integer(), nullable=False),
        sa.Column("count", sa.Integer(), nullable=False),
        sa.Column("codec", sa.Text(), nullable=False),
        sa.Column("blob", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("measurement_id", name=op.f("pk_request_records")),
        sa.ForeignKeyConstraint(
            ["measurement_id"],
            ["measurement.id"],
            name=op.f("fk_request_records_measurement_id_measurement"),
            ondelete="CASCADE",
        ),
    )


def _finding() -> None:
    op.create_table(
        "finding",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("measurement_id", sa.Integer()),
        sa.Column("created_at_s", sa.Float(53), nullable=False),
        sa.Column("target", sa.Text()),
        sa.Column("node", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("confidence", sa.Text()),
        sa.Column("payload", sa.JSON()),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_finding")),
        sa.ForeignKeyConstraint(
            ["measurement_id"],
            ["measurement.id"],
            name=op.f("fk_finding_measurement_id_measurement"),
            ondelete="CASCADE",
        ),
    )
    op.create_index(op.f("ix_finding_measurement_id"), "finding", ["measurement_id"])
    op.create_index(op.f("ix_finding_target"), "finding", ["target", "created_at_s"])

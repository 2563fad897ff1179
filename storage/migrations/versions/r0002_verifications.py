"""Verifications: advice put to the test, predicted and realised.

Revision 0002, after 0001.
"""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "verification",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("study_id", sa.Integer()),
        sa.Column("created_at_s", sa.Float(53), nullable=False),
        sa.Column("target", sa.Text()),
        sa.Column("node", sa.Text()),
        sa.Column("knob", sa.Text(), nullable=False),
        sa.Column("direction", sa.Text(), nullable=False),
        sa.Column("before", sa.JSON(), nullable=False),
        sa.Column("after", sa.JSON(), nullable=False),
        sa.Column("workload", sa.JSON()),
        sa.Column("slos", sa.Text()),
        sa.Column("figure", sa.Text(), nullable=False),
        sa.Column("predicted", sa.JSON()),
        sa.Column("realised", sa.JSON()),
        sa.Column("side_effects", sa.JSON()),
        sa.Column("node_before", sa.Text()),
        sa.Column("node_after", sa.Text()),
        sa.Column("outcome", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text()),
        sa.Column("applied", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_verification")),
        sa.ForeignKeyConstraint(
            ["study_id"],
            ["study.id"],
            name=op.f("fk_verification_study_id_study"),
            ondelete="CASCADE",
        ),
        sa.CheckConstraint(
            "outcome IN ('holds', 'refuted', 'harmful', 'undecided')",
            name=op.f("ck_verification_outcome"),
        ),
    )
    op.create_index(op.f("ix_verification_knob"), "verification", ["knob", "created_at_s"])


def downgrade() -> None:
    op.drop_table("verification")

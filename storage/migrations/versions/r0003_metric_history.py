"""The history of scraped metrics: targets, the series they export, points in time.

Revision 0003, after 0002.
"""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "metric_target",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("address", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_metric_target")),
        sa.UniqueConstraint("address", name=op.f("uq_metric_target_address")),
    )
    op.create_table(
        "metric_layout",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("target_id", sa.Integer(), nullable=False),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("blob", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_metric_layout")),
        sa.UniqueConstraint("target_id", "digest", name=op.f("uq_metric_layout_target_id")),
        sa.ForeignKeyConstraint(
            ["target_id"],
            ["metric_target.id"],
            name=op.f("fk_metric_layout_target_id_metric_target"),
            ondelete="CASCADE",
        ),
    )
    _point()


def downgrade() -> None:
    for table in ("metric_point", "metric_layout", "metric_target"):
        op.drop_table(table)


def _point() -> None:
    op.create_table(
        "metric_point",
        sa.Column("target_id", sa.Integer(), nullable=False),
        sa.Column("resolution_s", sa.Integer(), nullable=False),
        sa.Column("slot", sa.BigInteger(), nullable=False),
        sa.Column("at_s", sa.Float(53), nullable=False),
        sa.Column("layout_id", sa.Integer(), nullable=False),
        sa.Column("codec", sa.Text(), nullable=False),
        sa.Column("blob", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("target_id", "resolution_s", "slot", name=op.f("pk_metric_point")),
        sa.ForeignKeyConstraint(
            ["target_id"],
            ["metric_target.id"],
            name=op.f("fk_metric_point_target_id_metric_target"),
            ondelete="CASCADE",
        ),
        sa.ForeignKeyConstraint(
            ["layout_id"],
            ["metric_layout.id"],
            name=op.f("fk_metric_point_layout_id_metric_layout"),
        ),
    )
    op.create_index(op.f("ix_metric_point_layout_id"), "metric_point", ["layout_id"])

"""Weights for what is spare, in the two columns that say them."""

from __future__ import annotations

from sqlalchemy import BigInteger
from sqlalchemy.orm import Mapped, mapped_column


class Weighted:
    """What has its part of what is spare by a weight: None is by its quota, and 0 no part of it.

    To an API of an earlier release, which may work on this schema too, a weight of 0 is that of the quota and nothing
    can be NULL. So it is 0 in the column for both, and another column tells them apart.
    """

    number_of_weight: Mapped[int] = mapped_column("over_quota_weight", BigInteger, default=0, server_default="0")
    claims_spare: Mapped[bool] = mapped_column(default=True, server_default="1")

    @property
    def over_quota_weight(self) -> int | None:
        """The weight, or None."""
        return self.number_of_weight or (0 if self.claims_spare is False else None)

    @over_quota_weight.setter
    def over_quota_weight(self, weight: int | None) -> None:
        self.number_of_weight, self.claims_spare = weight or 0, weight != 0

"""The five dashboards, in the order in which one reads them."""

from boards.dry_run import DRY_RUN
from boards.overview import OVERVIEW
from boards.parts import Board
from boards.rollout import ROLLOUT
from boards.streaming import STREAMING
from boards.transforms import TRANSFORMS

__all__ = ["BOARDS", "Board"]

BOARDS = (OVERVIEW, ROLLOUT, TRANSFORMS, DRY_RUN, STREAMING)

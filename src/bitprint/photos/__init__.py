"""Photo collections: index images in folders, search by example, find near-duplicates."""

from __future__ import annotations

from bitprint.photos.collection import Added, Chosen, Hit, Photos, Synced, holds_pictures
from bitprint.photos.comparing import Compared, compare_pictures
from bitprint.photos.duplicates import Group, find_duplicates
from bitprint.photos.searching import find_hits

__all__ = [
    "Added",
    "Chosen",
    "Compared",
    "Group",
    "Hit",
    "Photos",
    "Synced",
    "compare_pictures",
    "find_duplicates",
    "find_hits",
    "holds_pictures",
]

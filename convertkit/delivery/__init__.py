"""Output folders that are absent or complete, and never cost the user a file.

Work happens in a locked workspace on the output's own file system and is renamed into place at the end.  Where the
folder itself cannot be replaced (a mount point, the current folder), its entries are moved into it one by one, the
manifest last, and a journal lets the next run undo what a killed one has left half done.
"""

from convertkit.delivery.delivering import check_free, deliver, leave_failed
from convertkit.delivery.ownership import SOURCE, strangers
from convertkit.delivery.workspaces import Workspace, workspace

__all__ = ["SOURCE", "Workspace", "check_free", "deliver", "leave_failed", "strangers", "workspace"]

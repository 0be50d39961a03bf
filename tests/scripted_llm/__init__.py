"""A scripted language model: a real HTTP server that answers as a test says, and a fake of the same in process."""

from tests.scripted_llm.actions import Action, Hang, Malformed, Reply, Reset, Status
from tests.scripted_llm.fake import FakeChatModel
from tests.scripted_llm.server import ScriptedServer, Seen

__all__ = ["Action", "FakeChatModel", "Hang", "Malformed", "Reply", "Reset", "ScriptedServer", "Seen", "Status"]

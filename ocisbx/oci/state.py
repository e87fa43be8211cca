"""What a runtime's `state` prints and what hooks read on stdin (runtime.md, "State")."""

from typing import Annotated, Literal

from pydantic import Field

from ocisbx.oci.base import Opt, SpecModel, StringMap

Status = Literal["creating", "created", "running", "stopped"]


class State(SpecModel):
    """State of a container; `pid` is as the runtime sees it, `bundle` an absolute path."""

    oci_version: str
    id: str
    status: Status
    pid: Opt[Annotated[int, Field(ge=0)]] = None
    bundle: str
    annotations: Opt[StringMap] = None

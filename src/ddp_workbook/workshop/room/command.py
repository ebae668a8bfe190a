"""`room`: who is where, and at which exercise most are stuck."""

from pathlib import Path
from typing import Annotated

import typer

from ddp_workbook.workshop.commands import FOR_TEACHERS
from ddp_workbook.workshop.requirements import require_course
from manyranks.command_line import plain_errors

app = typer.Typer()


@app.command(rich_help_panel=FOR_TEACHERS)
def room(
    folder: Annotated[
        Path | None,
        typer.Option(envvar="WORKBOOK_ROOM", help="The folder of the room; see --serve."),
    ] = None,
    page: Annotated[
        Path | None, typer.Option(help="Also write a page to project: it has nobody's attempts.")
    ] = None,
    names: Annotated[
        bool, typer.Option("--names", help="Names stand on the page to project, too.")
    ] = False,
    every: Annotated[
        float, typer.Option(min=0.5, metavar="SECONDS", help="Between two looks.")
    ] = 5.0,
    once: Annotated[bool, typer.Option("--once", help="Show it once, and end.")] = False,
    serve: Annotated[
        bool, typer.Option("--serve", help="Listen for attendees on machines without that folder.")
    ] = False,
    address: Annotated[
        str | None, typer.Option(help="With --serve: listen here; else this machine's address.")
    ] = None,
    port: Annotated[
        int, typer.Option(min=0, max=65535, metavar="PORT", help="With --serve.")
    ] = 8765,
    certificate: Annotated[
        Path | None, typer.Option(help="With --serve: a certificate (PEM), for TLS.")
    ] = None,
    key: Annotated[Path | None, typer.Option(help="The key of --certificate.")] = None,
    remove: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Take all with this name out of the room, and end."),
    ] = None,
) -> None:
    """Show who is where, and at which exercise most are stuck, until Ctrl-C.

    Attendees who want to be seen join in a page: by a folder that all
    machines share, `join_room("a name", "folder")`, or with --serve
    over the network, `join("http://...", "code", "a name")`. Their
    answers are not shared. The exit code of --once is 1 if the folder
    cannot be read.
    """
    require_course()
    from ddp_workbook.workshop.room import board
    from ddp_workbook.workshop.room.views import Invitation, View, people

    if folder is None and not serve:
        raise typer.BadParameter("name the room's --folder, or --serve the room over the network")
    if not serve and (address or certificate or key):
        raise typer.BadParameter("--address, --certificate and --key need --serve")
    if remove is not None and (folder is None or serve):
        raise typer.BadParameter("--remove needs the room's --folder, and no --serve")
    with plain_errors():
        if remove is not None:
            assert folder is not None
            count = board.remove(folder, remove)
            typer.echo(f"Taken out of the room: {people(count)} called {remove}.")
            raise typer.Exit(0 if count else 1)
        if not serve:
            assert folder is not None
            raise typer.Exit(View(folder, page, every, None, names).watch(once))
        from ddp_workbook.page.pages import CHECKOUT
        from ddp_workbook.workshop.room import server

        folder = folder or CHECKOUT / "notebooks" / "work" / "served_room"
        page = page or folder / "room.html"
        room_state = server.Room(folder, server.code_of(folder))
        secure = server.encryption(certificate, key)
        where = address or server.own_address()
        with server.RoomServer(room_state, where, port, secure) as room_server:
            typer.echo(f"Listening on {room_server.address}. Project {page.absolute().as_uri()}")
            if not secure:
                typer.echo(server.UNENCRYPTED)
            invitation = Invitation(room_server.address, room_state.code)
            view = View(folder, page, every, invitation, names, room_state.warning)
            raise typer.Exit(view.watch(once))

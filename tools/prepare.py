"""Get what the tests bring along, once and not in each of their processes: `python -m tools.prepare`."""

from tests.support import mongo_servers, node, plugins, port, servers
from tests.support.progress import Ticker


def main() -> None:
    """Name each step, and say every while that it still runs."""
    with Ticker(lambda seconds: print(f"prepare: still at it after {seconds:.0f} s", flush=True), 20):
        print("prepare: servers", flush=True)
        print(f"prepare: {', '.join(f'{kind} ({source.name})' for kind, source in servers.sources().items())}")
        print("prepare: plugins for pytest, by pip", flush=True)
        plugins.folder()
        mongo_servers.prepare(lambda text: print(f"prepare: {text}", flush=True))
        if node.node_available():
            print("prepare: BullMQ, its telemetry, bull-board and NestJS for Node, by npm", flush=True)
            for installed in node.FOLDERS.values():
                installed()
            node.otel_folder()
            node.board_folder()
            node.nest_folder()
            print("prepare: BullMQ's Python port and other libraries, by pip", flush=True)
            port.port_python()
            for peer in port.PEERS:
                port.peer_python(peer)
        else:
            print("prepare: no Node here, so that oracle and interop are left out", flush=True)


if __name__ == "__main__":
    main()

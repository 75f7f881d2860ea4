"""A store of the tests' own, of TCPStore's protocol: it can end, and be looked into."""
import socket
import struct
import threading


class Store:
    def __init__(self):
        self.values = {}
        self.connections = 0
        self._open = set()
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=100)
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self):
        """As a process's end would: nothing listens, and every connection is cut."""
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for connection in list(self._open):
            connection.shutdown(socket.SHUT_RDWR)

    def _accept(self):
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            self._open.add(connection)
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection):
        stream = connection.makefile("rb")

        def read(form):
            size = struct.calcsize(form)
            data = stream.read(size)
            if len(data) != size:
                raise EOFError
            return struct.unpack(form, data)[0]

        def text():
            return stream.read(read("=Q"))

        try:
            if read("=B") != 0 or read("=I") != 0x3C85F7CE:
                return
            while True:
                kind = read("=B")
                if kind == 1:
                    key = text()
                    self.values[key] = text()
                elif kind == 3:
                    value = self.values[text()]
                    connection.sendall(struct.pack("=Q", len(value)) + value)
                elif kind == 5:
                    keys = [text() for _ in range(read("=Q"))]
                    connection.sendall(b"\1" if any(k not in self.values for k in keys) else b"\0")
                elif kind == 8:
                    removed = self.values.pop(text(), None) is not None
                    connection.sendall(struct.pack("=q", removed))
                else:
                    return
        except (EOFError, OSError, KeyError):
            pass
        finally:
            stream.close()
            connection.close()
            self._open.discard(connection)

"""In the place of `test/service.py`, which the source distribution lacks: its tests start no broker of their own here."""


class ExternalService:
    def __init__(self, host, port):
        self.host = host
        self.port = port

    def open(self):
        pass

    def stop(self):
        pass


class SpawnedService:
    pass

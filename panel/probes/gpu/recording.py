"""Sessions of NVML on disk: recorded on a GPU host, played where there is none.

A recording holds, by call, the answers at the ticks at which they changed, and what the call cost.
Field values are kept one by one: [timestamp, type, code, bits].
A player answers with the real library's types, errors included.
"""

from __future__ import annotations

import ctypes
import queue
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pynvml

_FIELDS = "nvmlDeviceGetFieldValues"
_Pointer = pynvml.c_nvmlDevice_t


class Entry(msgspec.Struct, omit_defaults=True):
    """The answers to one call: (tick, answer); an answer is plain JSON, a struct or an error."""

    us: float
    """Median of its duration, microseconds."""
    answers: list[tuple[int, Any]] = []


class Recording(msgspec.Struct):
    """One session. Each look of a sampler takes two ticks: its window lies between them."""

    library: str
    ticks: int
    calls: dict[str, Entry] = {}

    @staticmethod
    def load(path: Path) -> Recording:
        """Read a recording. Raises OSError."""
        return msgspec.json.decode(path.read_bytes(), type=Recording)


class Recorder:
    """NVML that notes what it answers; pass it where an `Nvml` is wanted."""

    def __init__(self, library: Any = pynvml) -> None:
        self.tick = 0
        self._library = library
        self._indices: dict[int, int] = {}
        self._answers: dict[str, list[tuple[int, Any]]] = {}
        self._durations: dict[str, list[float]] = {}

    def __getattr__(self, name: str) -> Callable[..., Any]:
        function = getattr(self._library, name)

        def call(*args: Any) -> Any:
            started = time.perf_counter()
            try:
                answer = function(*args)
            except pynvml.NVMLError as error:
                self._note(name, args, {"error": error.value}, started)
                raise
            if name == "nvmlDeviceGetHandleByIndex":
                self._indices[_address(answer)] = args[0]
            self._note(name, args, answer, started)
            return answer

        return call

    def recording(self) -> Recording:
        """Return what was noted."""
        return Recording(
            library=getattr(self._library, "__version__", ""),
            ticks=self.tick,
            calls={
                key: Entry(round(statistics.median(self._durations[key]), 1), answers)
                for key, answers in self._answers.items()
            },
        )

    def _note(self, name: str, args: tuple[Any, ...], answer: Any, started: float) -> None:
        spent = 1e6 * (time.perf_counter() - started)
        if name == _FIELDS and not isinstance(answer, dict):
            gpu = self._name(args[0])
            for field in answer:
                key = f"field {gpu} {field.fieldId} {field.scopeId}"
                self._put(key, _field(field), field.latencyUsec or spent / len(answer))
            args = (args[0], len(args[1]))
            answer = None
        key = f"{name} {' '.join(self._name(arg) for arg in args)}".strip()
        self._put(key, _plain(answer), spent)

    def _put(self, key: str, answer: Any, spent: float) -> None:
        answers = self._answers.setdefault(key, [])
        if not answers or answers[-1][1] != answer:
            answers.append((self.tick, answer))
        self._durations.setdefault(key, []).append(spent)

    def _name(self, arg: Any) -> str:
        return f"gpu{self._indices[_address(arg)]}" if isinstance(arg, _Pointer) else str(arg)


class Player:
    """An `Nvml` that answers as the recorded one did at the present tick.

    `faults` takes (index, event type, data) for whoever waits for events.
    """

    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        self.tick = 0
        self.calls: list[str] = []
        """What was called, by the recording's keys, in order."""
        self.faults: queue.Queue[tuple[int, int, int]] = queue.Queue()
        self.broken: dict[str, int] = {}
        """Error codes by call or GPU (`gpu3`): what is to fail from now on."""

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if not name.startswith("nvml"):
            raise AttributeError(name)
        return lambda *args: self._answer(name, args)

    def nvmlShutdown(self) -> None:  # noqa: N802
        self._key("nvmlShutdown", ())

    def nvmlDeviceGetHandleByIndex(self, index: int) -> Any:  # noqa: N802
        return _handle(index, self._answer("nvmlDeviceGetHandleByIndex", (index,)))

    def nvmlDeviceGetFieldValues(  # noqa: N802
        self, gpu: Any, fields: Sequence[tuple[int, int]]
    ) -> Any:
        self._key(_FIELDS, (gpu, len(fields)))
        values = (pynvml.c_nvmlFieldValue_t * len(fields))()
        for value, (field, scope) in zip(values, fields, strict=True):
            value.fieldId, value.scopeId = field, scope
            value.nvmlReturn = pynvml.NVML_ERROR_NOT_SUPPORTED
            entry = self.recording.calls.get(f"field {_gpu_name(gpu)} {field} {scope}")
            if entry is not None:
                value.timestamp, value.valueType, value.nvmlReturn, value.value.ullVal = self._at(
                    entry
                )
        return values

    def nvmlEventSetCreate(self) -> Any:  # noqa: N802
        return pynvml.c_nvmlEventSet_t()

    def nvmlDeviceRegisterEvents(self, gpu: Any, types: int, events: Any) -> None:  # noqa: N802
        self._key("nvmlDeviceRegisterEvents", (gpu,))

    def nvmlEventSetWait_v2(self, events: Any, milliseconds: int) -> Any:  # noqa: N802
        try:
            index, kind, data = self.faults.get(timeout=milliseconds / 1000)
        except queue.Empty:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_TIMEOUT) from None
        event = pynvml.c_nvmlEventData_t()
        event.device, event.eventType, event.eventData = _handle(index), kind, data
        return event

    def _answer(self, name: str, args: tuple[Any, ...]) -> Any:
        entry = self.recording.calls.get(self._key(name, args))
        if entry is None:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
        return _revive(self._at(entry))

    def _key(self, name: str, args: tuple[Any, ...]) -> str:
        """Note a call and return its key; raises where it is to fail."""
        words = [_gpu_name(arg) if isinstance(arg, _Pointer) else str(arg) for arg in args]
        key = " ".join([name, *words])
        self.calls.append(key)
        for word in (name, *words):
            if word in self.broken:
                raise pynvml.NVMLError(self.broken[word])
        return key

    def _at(self, entry: Entry) -> Any:
        earlier = [answer for tick, answer in entry.answers if tick <= self.tick]
        return earlier[-1] if earlier else entry.answers[0][1]


def _handle(index: int, _: Any = None) -> Any:
    return ctypes.cast(ctypes.c_void_p(index + 1), _Pointer)


def _gpu_name(handle: Any) -> str:
    return f"gpu{_address(handle) - 1}"


def _address(handle: Any) -> int:
    return ctypes.cast(handle, ctypes.c_void_p).value or 0


def _field(field: Any) -> list[int]:
    return [field.timestamp, field.valueType, field.nvmlReturn, field.value.ullVal]


def _plain(value: Any) -> Any:
    """Return an answer as JSON: a struct becomes `{type: {field: value}}`."""
    if isinstance(value, ctypes.Structure):
        fields = {name: _plain(getattr(value, name)) for name, *_ in value._fields_}
        return {type(value).__name__: fields}
    if isinstance(value, pynvml.nvmlFriendlyObject):
        return {"friendly": dict(vars(value))}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, dict | int | float | str | None):
        return value
    # A handle or an event set means nothing to another process.
    return None


def _revive(answer: Any) -> Any:
    """Return the answer with the library's own types; raises where it was an error."""
    if isinstance(answer, list):
        return [_revive(each) for each in answer]
    if not isinstance(answer, dict):
        return answer
    ((kind, content),) = answer.items()
    if kind == "error":
        raise pynvml.NVMLError(content)
    if kind == "friendly":
        return pynvml.nvmlFriendlyObject(content)
    struct = getattr(pynvml, kind)()
    for name, value in content.items():
        setattr(struct, name, value)
    return struct

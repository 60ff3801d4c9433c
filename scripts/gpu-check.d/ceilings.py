# SPDX-License-Identifier: MIT
"""What a GPU can do at most, asked of the CUDA libraries themselves; the last line is all of it as JSON.

  ceilings.py facts|ceilings|pinning LIBCUDART LIBCUBLAS

Started by scripts/gpu-check. Needs the driver, and no package of Python."""
import ctypes
import json
import os
import statistics
import sys
import time

GIB = 1 << 30
SIDE = 8192
HOST_TO_DEVICE, DEVICE_TO_HOST, DEVICE_TO_DEVICE = 1, 2, 3
NON_BLOCKING = 1
MULTIPROCESSORS = 16  # cudaDevAttrMultiProcessorCount
FLOAT32, BFLOAT16 = 0, 14  # cudaDataType
COMPUTE_FLOAT32 = 68
DEFAULT_ALGORITHM = -1
RELAXED_CAPTURE = 2
LAUNCHES = 2000
EMPTY_KERNEL = b""".version 7.0
.target sm_80
.address_size 64
.visible .entry nothing() { ret; }
"""


class Library:
    """Functions by name; a code that is not 0 ends the process with its name."""

    def __init__(self, path):
        self.library = ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)

    def __getattr__(self, name):
        function = getattr(self.library, name)

        def call(*arguments):
            code = function(*arguments)
            if code != 0:
                sys.exit(f"{name} answers {code}")
        return call


def pointer():
    return ctypes.c_void_p()


def size(count):
    return ctypes.c_size_t(count)


class Gpu:
    def __init__(self, runtime, blas):
        self.driver = Library("libcuda.so.1")
        self.cuda = Library(runtime)
        self.blas = Library(blas)
        count = ctypes.c_int()
        self.driver.cuInit(0)
        self.cuda.cudaGetDeviceCount(ctypes.byref(count))
        if count.value == 0:
            sys.exit("the CUDA runtime sees no device")
        self.cuda.cudaSetDevice(0)
        self.cuda.cudaFree(None)  # makes the context
        self.stream, self.other = self.new_stream(), self.new_stream()

    def new_stream(self):
        stream = pointer()
        self.cuda.cudaStreamCreateWithFlags(ctypes.byref(stream), NON_BLOCKING)
        return stream

    def memory(self):
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        self.cuda.cudaMemGetInfo(ctypes.byref(free), ctypes.byref(total))
        return free.value, total.value

    def on_device(self, count):
        made = pointer()
        self.cuda.cudaMalloc(ctypes.byref(made), size(count))
        return made

    def pinned(self, count):
        made = pointer()
        self.cuda.cudaHostAlloc(ctypes.byref(made), size(count), 0)
        return made

    def copy(self, target, source, count, kind, stream):
        self.cuda.cudaMemcpyAsync(target, source, size(count), kind, stream)

    def seconds(self, work, repeats=5, times=4):
        """Median of device seconds of `work`, after one that does not count."""
        begin, end = pointer(), pointer()
        for event in (begin, end):
            self.cuda.cudaEventCreate(ctypes.byref(event))
        work()
        self.cuda.cudaDeviceSynchronize()
        found = []
        for _ in range(repeats):
            self.cuda.cudaEventRecord(begin, self.stream)
            for _ in range(times):
                work()
            self.cuda.cudaEventRecord(end, self.stream)
            self.cuda.cudaEventSynchronize(end)
            milliseconds = ctypes.c_float()
            self.cuda.cudaEventElapsedTime(ctypes.byref(milliseconds), begin, end)
            found.append(milliseconds.value / 1e3 / times)
        return statistics.median(found)


def facts(gpu):
    count = ctypes.c_int()
    gpu.cuda.cudaDeviceGetAttribute(ctypes.byref(count), MULTIPROCESSORS, 0)
    free, total = gpu.memory()
    driver, runtime = ctypes.c_int(), ctypes.c_int()
    gpu.cuda.cudaDriverGetVersion(ctypes.byref(driver))
    gpu.cuda.cudaRuntimeGetVersion(ctypes.byref(runtime))
    return {"multiprocessors": count.value, "free_bytes": free, "total_bytes": total, "driver_cuda": driver.value,
            "runtime_cuda": runtime.value}


def fill(gpu, target, count):
    """Numbers around 1 of both signs, as float32 and as bfloat16: products of zeros take less power, and less time."""
    numbers = bytearray(os.urandom(4 << 20))
    numbers[1::2] = bytes(0x3F | (byte & 0x80) for byte in numbers[1::2])
    block = (ctypes.c_char * len(numbers)).from_buffer(numbers)
    for begin in range(0, count, len(numbers)):
        part = min(len(numbers), count - begin)
        gpu.copy(ctypes.c_void_p(target.value + begin), block, part, HOST_TO_DEVICE, gpu.stream)
    gpu.cuda.cudaDeviceSynchronize()


def products(gpu):
    """Operations a second of square products."""
    handle = pointer()
    gpu.blas.cublasCreate_v2(ctypes.byref(handle))
    gpu.blas.cublasSetStream_v2(handle, gpu.stream)
    found = {}
    one, zero = ctypes.c_float(1.0), ctypes.c_float(0.0)
    for name, kind, width in (("bfloat16", BFLOAT16, 2), ("float32", FLOAT32, 4)):
        left, right, result = (gpu.on_device(SIDE * SIDE * width) for _ in range(3))
        for matrix in (left, right):
            fill(gpu, matrix, SIDE * SIDE * width)

        def product():
            gpu.blas.cublasGemmEx(handle, 0, 0, SIDE, SIDE, SIDE, ctypes.byref(one), left, kind, SIDE, right, kind, SIDE,
                                  ctypes.byref(zero), result, kind, SIDE, COMPUTE_FLOAT32, DEFAULT_ALGORITHM)
        found[name + "_operations_per_second"] = 2 * SIDE**3 / gpu.seconds(product)
        for matrix in (left, right, result):
            gpu.cuda.cudaFree(matrix)
    return found


def copies(gpu):
    """Bytes a second: within the device read and written both count."""
    amount = 2 * GIB
    one, other = gpu.on_device(amount), gpu.on_device(amount)
    within = gpu.seconds(lambda: gpu.copy(one, other, amount, DEVICE_TO_DEVICE, gpu.stream))
    amount = GIB
    host, second = gpu.pinned(amount), gpu.pinned(amount)
    into = gpu.seconds(lambda: gpu.copy(one, host, amount, HOST_TO_DEVICE, gpu.stream))
    out = gpu.seconds(lambda: gpu.copy(second, other, amount, DEVICE_TO_HOST, gpu.stream))
    both = []
    for _ in range(4):
        start = time.perf_counter()
        gpu.copy(one, host, amount, HOST_TO_DEVICE, gpu.stream)
        gpu.copy(second, other, amount, DEVICE_TO_HOST, gpu.other)
        gpu.cuda.cudaDeviceSynchronize()
        both.append(time.perf_counter() - start)
    for memory in (host, second):
        gpu.cuda.cudaFreeHost(memory)
    for memory in (one, other):
        gpu.cuda.cudaFree(memory)
    return {"device_copy_bytes_per_second": 2 * 2 * GIB / within, "in_bytes_per_second": amount / into,
            "out_bytes_per_second": amount / out, "both_ways_bytes_per_second": 2 * amount / statistics.median(both)}


def launches(gpu):
    """Seconds of a launch, issued by this Python, and of a node of a graph."""
    module, kernel = pointer(), pointer()
    gpu.driver.cuModuleLoadData(ctypes.byref(module), EMPTY_KERNEL)
    gpu.driver.cuModuleGetFunction(ctypes.byref(kernel), module, b"nothing")

    def launch():
        gpu.driver.cuLaunchKernel(kernel, 1, 1, 1, 32, 1, 1, 0, gpu.stream, None, None)

    single = gpu.seconds(launch, times=LAUNCHES)
    graph, ready = pointer(), pointer()
    gpu.cuda.cudaStreamBeginCapture(gpu.stream, RELAXED_CAPTURE)
    for _ in range(LAUNCHES):
        launch()
    gpu.cuda.cudaStreamEndCapture(gpu.stream, ctypes.byref(graph))
    gpu.cuda.cudaGraphInstantiate(ctypes.byref(ready), graph, ctypes.c_ulonglong(0))
    whole = gpu.seconds(lambda: gpu.cuda.cudaGraphLaunch(ready, gpu.stream))
    return {"launch_seconds": single, "graph_node_seconds": whole / LAUNCHES}


def pinning(gpu):
    found = {}
    available = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    for gibibytes in (1, 4, 16):
        if gibibytes * GIB > available / 2:
            break
        start = time.perf_counter()
        memory = gpu.pinned(gibibytes * GIB)
        found[str(gibibytes)] = time.perf_counter() - start
        gpu.cuda.cudaFreeHost(memory)
        print(json.dumps({"seconds_by_gibibytes": found}), flush=True)  # the next may not end in time
    return {"seconds_by_gibibytes": found}


def main():
    if len(sys.argv) != 4 or sys.argv[1] not in ("facts", "ceilings", "pinning"):
        sys.exit(__doc__)
    gpu = Gpu(*sys.argv[2:])
    answer = {"facts": facts, "pinning": pinning,
              "ceilings": lambda gpu: {**copies(gpu), **products(gpu), **launches(gpu)}}[sys.argv[1]](gpu)
    print(json.dumps(answer))


main()

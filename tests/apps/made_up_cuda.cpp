// Functions of the CUDA driver, of its runtime and of cuBLAS that check what they are given and do
// nothing else: what scripts/gpu-check.d/ceilings.py calls can be tried without a GPU. Every event
// is 2 ms after the one before.
#include <cstddef>
#include <cstdlib>
#include <cstring>

namespace {

constexpr int refused = 1;
constexpr int launches = 2000;
constexpr int side = 8192;

void* handle(std::size_t number) {
  return reinterpret_cast<void*>(number);  // NOLINT(performance-no-int-to-ptr): never followed
}

void* const module = handle(1);
void* const kernel = handle(2);
void* const event = handle(3);
void* const graph = handle(4);
void* const ready_graph = handle(5);
void* const products = handle(6);
std::size_t streams = 100;
int launched = 0;

int accepted(bool good) {
  return good ? 0 : refused;
}

bool is_stream(void* stream) {
  return reinterpret_cast<std::size_t>(stream) >= 100;
}

// Matrices were filled with numbers around 1 of both signs.
bool has_numbers(const void* matrix) {
  const auto* bytes = static_cast<const unsigned char*>(matrix);
  return (bytes[1] & 0x7F) == 0x3F && (bytes[3] & 0x7F) == 0x3F;
}

}  // namespace

extern "C" {

int cuInit(unsigned flags) {
  return accepted(flags == 0);
}
int cuModuleLoadData(void** made, const char* text) {
  *made = module;
  return accepted(std::strncmp(text, ".version", 8) == 0);
}
int cuModuleGetFunction(void** made, void* from, const char* name) {
  *made = kernel;
  return accepted(from == module && std::strcmp(name, "nothing") == 0);
}
int cuLaunchKernel(void* function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                   unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared,
                   void* stream, void** parameters, void** extra) {
  ++launched;
  return accepted(function == kernel && grid_x == 1 && grid_y == 1 && grid_z == 1 &&
                  block_x == 32 && block_y == 1 && block_z == 1 && shared == 0 &&
                  is_stream(stream) && parameters == nullptr && extra == nullptr);
}

int cudaGetDeviceCount(int* count) {
  *count = std::getenv("MADE_UP_CUDA_HAS_NO_DEVICE") == nullptr ? 1 : 0;
  return 0;
}
int cudaSetDevice(int device) {
  return accepted(device == 0);
}
int cudaDeviceSynchronize() {
  return 0;
}
int cudaDeviceGetAttribute(int* value, int attribute, int device) {
  *value = 132;
  return accepted(attribute == 16 && device == 0);
}
int cudaDriverGetVersion(int* version) {
  *version = 13010;
  return 0;
}
int cudaRuntimeGetVersion(int* version) {
  *version = 13000;
  return 0;
}
int cudaMemGetInfo(std::size_t* available, std::size_t* total) {
  *available = std::size_t{149} << 30;
  *total = std::size_t{150} << 30;
  return 0;
}
int cudaMalloc(void** made, std::size_t bytes) {
  *made = std::malloc(bytes);
  return accepted(*made != nullptr);
}
int cudaFree(void* memory) {
  std::free(memory);
  return 0;
}
int cudaHostAlloc(void** made, std::size_t bytes, unsigned flags) {
  *made = std::malloc(bytes);
  return accepted(*made != nullptr && flags == 0);
}
int cudaFreeHost(void* memory) {
  return cudaFree(memory);
}
// Both ends alone: they are there, and no time is spent.
int cudaMemcpyAsync(void* target, const void* source, std::size_t bytes, int kind, void* stream) {
  std::memcpy(target, source, 4);
  static_cast<char*>(target)[bytes - 1] = static_cast<const char*>(source)[bytes - 1];
  return accepted(kind >= 1 && kind <= 3 && is_stream(stream));
}
int cudaStreamCreateWithFlags(void** made, unsigned flags) {
  *made = handle(streams++);
  return accepted(flags == 1);
}
int cudaEventCreate(void** made) {
  *made = event;
  return 0;
}
int cudaEventRecord(void* which, void* stream) {
  return accepted(which == event && is_stream(stream));
}
int cudaEventSynchronize(void* which) {
  return accepted(which == event);
}
int cudaEventElapsedTime(float* milliseconds, void* begin, void* end) {
  *milliseconds = 2;
  return accepted(begin == event && end == event);
}
int cudaStreamBeginCapture(void* stream, int mode) {
  launched = 0;
  return accepted(is_stream(stream) && mode == 2);
}
int cudaStreamEndCapture(void* stream, void** made) {
  *made = graph;
  return accepted(is_stream(stream) && launched == launches);
}
int cudaGraphInstantiate(void** made, void* from, unsigned long long flags) {
  *made = ready_graph;
  return accepted(from == graph && flags == 0);
}
int cudaGraphLaunch(void* which, void* stream) {
  return accepted(which == ready_graph && is_stream(stream));
}

int cublasCreate_v2(void** made) {
  *made = products;
  return 0;
}
int cublasSetStream_v2(void* which, void* stream) {
  return accepted(which == products && is_stream(stream));
}
int cublasGemmEx(void* which, int transpose_a, int transpose_b, int m, int n, int k,
                 const float* alpha, const void* a, int type_a, int stride_a, const void* b,
                 int type_b, int stride_b, const float* beta, void* c, int type_c, int stride_c,
                 int compute, int algorithm) {
  const bool sizes = m == side && n == side && k == side && stride_a == side && stride_b == side &&
                     stride_c == side;
  const bool types = type_a == type_b && type_b == type_c && (type_a == 0 || type_a == 14);
  return accepted(which == products && transpose_a == 0 && transpose_b == 0 && sizes && types &&
                  *alpha == 1 && *beta == 0 && compute == 68 && algorithm == -1 && has_numbers(a) &&
                  has_numbers(b) && c != nullptr);
}

}  // extern "C"

#include "kernels/device/places.hpp"

#include <Kokkos_Core.hpp>

#include <optional>

namespace garonne::kernels::test {

namespace {

#ifdef KOKKOS_ENABLE_CUDA

using Memory = Kokkos::CudaSpace;
// On Kokkos' own stream, which ends with Kokkos.
std::optional<Kokkos::Cuda> instance;

void copy(void* to, const void* from, std::int64_t bytes, cudaMemcpyKind direction) {
  ASSERT_EQ(cudaMemcpy(to, from, static_cast<std::size_t>(bytes), direction), cudaSuccess);
}

#else

using Memory = Kokkos::HostSpace;

#endif

double* scratch = nullptr;
std::vector<device::Place> all;
int launched = 0;

// Kokkos starts once in a process.
class KokkosEnvironment : public ::testing::Environment {
 public:
  void SetUp() override {
#ifdef KOKKOS_ENABLE_CUDA
    int devices = 0;
    ASSERT_EQ(cudaGetDeviceCount(&devices), cudaSuccess) << "these tests need a GPU";
    ASSERT_GT(devices, 0) << "these tests need a GPU";
#endif
#ifdef __SANITIZE_THREAD__
    // Neither Kokkos nor what it has threads from is built with the sanitizer, which knows no order
    // of them.
    constexpr int threads = 1;
#else
    constexpr int threads = 2;
#endif
    Kokkos::initialize(
        Kokkos::InitializationSettings().set_num_threads(threads).set_disable_warnings(true));
    scratch = static_cast<double*>(Kokkos::kokkos_malloc<Memory>(
        static_cast<std::size_t>(device::scratch_doubles + device::block_doubles) *
        sizeof(double)));
#ifdef KOKKOS_ENABLE_CUDA
    instance.emplace();
    all = {{ device::Space::Cuda, &*instance, scratch }};
#else
    all = {{device::Space::Serial, nullptr, scratch}, {device::Space::OpenMp, nullptr, scratch}};
#endif
  }
  void TearDown() override {
    if (!Kokkos::is_initialized()) return;
#ifdef KOKKOS_ENABLE_CUDA
    instance.reset();
#endif
    Kokkos::kokkos_free<Memory>(scratch);
    Kokkos::finalize();
  }
};

const ::testing::Environment* const kokkos_environment =
    ::testing::AddGlobalTestEnvironment(new KokkosEnvironment);

}  // namespace

const std::vector<device::Place>& places() {
  return all;
}

OnPlace::OnPlace(const device::Place&, void* values, std::int64_t bytes, bool comes_back)
    : host_(values), bytes_(bytes), comes_back_(comes_back), data_(values) {
#ifdef KOKKOS_ENABLE_CUDA
  data_ = Kokkos::kokkos_malloc<Memory>(static_cast<std::size_t>(bytes));
  copy(data_, values, bytes, cudaMemcpyHostToDevice);
#endif
}

OnPlace::~OnPlace() {
#ifdef KOKKOS_ENABLE_CUDA
  Kokkos::fence();
  if (comes_back_) copy(host_, data_, bytes_, cudaMemcpyDeviceToHost);
  Kokkos::kokkos_free<Memory>(data_);
#endif
}

std::string name_of(const device::Place& place) {
  return std::string(device::to_string(place.space));
}

int launches_of(const std::function<void()>& put) {
  launched = 0;
  Kokkos::Tools::Experimental::set_begin_parallel_for_callback(
      [](const char*, std::uint32_t, std::uint64_t*) { ++launched; });
  put();
  Kokkos::Tools::Experimental::set_begin_parallel_for_callback(nullptr);
  return launched;
}

}  // namespace garonne::kernels::test

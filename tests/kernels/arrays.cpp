#include "kernels/arrays.hpp"

#include "base/philox.hpp"
#include "kernels/session.hpp"

#include <bit>
#include <cmath>
#include <cstring>
#include <memory>

namespace garonne::kernels::test {

namespace {

std::unique_ptr<KernelSession> session;

// A session is made once in a process, so all tests of the program share one.
class SessionEnvironment : public ::testing::Environment {
 public:
  void SetUp() override { session = std::make_unique<KernelSession>(2); }
  void TearDown() override { session.reset(); }
};

const ::testing::Environment* const environment =
    ::testing::AddGlobalTestEnvironment(new SessionEnvironment);

// The slow obvious rounding: the nearer of the two neighbours, the even one when equally near.
std::uint16_t nearest_bfloat16(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t below = bits & 0xFFFF0000U;
  const std::uint32_t above = below + 0x10000U;
  const double low = static_cast<double>(std::bit_cast<float>(below));
  const double high = static_cast<double>(std::bit_cast<float>(above));
  const double to_low = std::abs(static_cast<double>(value) - low);
  const double to_high = std::abs(high - static_cast<double>(value));
  const bool up = to_high < to_low || (to_high == to_low && (above >> 16) % 2 == 0);
  return static_cast<std::uint16_t>((up ? above : below) >> 16);
}

template <typename T>
T read(const void* place) {
  T value;
  std::memcpy(&value, place, sizeof value);
  return value;
}

}  // namespace

Array::Array(ElementType type, std::int64_t count, double value)
    : type_(type), count_(count), bytes_(static_cast<std::size_t>(count * element_bytes(type))) {
  for (std::int64_t i = 0; i < count; ++i) set(i, value);
}

double Array::operator[](std::int64_t index) const {
  const unsigned char* place = bytes_.data() + index * element_bytes(type_);
  if (type_ == ElementType::Float64) return read<double>(place);
  if (type_ == ElementType::Float32) return static_cast<double>(read<float>(place));
  const auto bits = static_cast<std::uint32_t>(read<std::uint16_t>(place)) << 16;
  return static_cast<double>(std::bit_cast<float>(bits));
}

void Array::set(std::int64_t index, double value) {
  unsigned char* place = bytes_.data() + index * element_bytes(type_);
  const float rounded = static_cast<float>(value);
  const std::uint16_t half = nearest_bfloat16(rounded);
  if (type_ == ElementType::Float64) std::memcpy(place, &value, sizeof value);
  if (type_ == ElementType::Float32) std::memcpy(place, &rounded, sizeof rounded);
  if (type_ == ElementType::BFloat16) std::memcpy(place, &half, sizeof half);
}

Array random_array(ElementType type, std::int64_t count, std::uint32_t seed, double range) {
  Array array(type, count);
  for (std::int64_t i = 0; i < count; ++i) {
    const PhiloxBlock block = philox_at({seed, 77}, 0, 0, static_cast<std::uint64_t>(i));
    array.set(i, range * (static_cast<double>(block.word[0]) * 0x1p-31 - 1.0));
  }
  return array;
}

double rounding(ElementType type) {
  return type == ElementType::Float64 ? 0x1p-53 : type == ElementType::Float32 ? 0x1p-24 : 0x1p-8;
}

std::vector<double> values_of(const Array& array) {
  std::vector<double> values;
  for (std::int64_t i = 0; i < array.count(); ++i) values.push_back(array[i]);
  return values;
}

void expect_near(const Array& got, const std::vector<double>& wanted, double relative,
                 double absolute, const std::string& what) {
  ASSERT_EQ(static_cast<std::size_t>(got.count()), wanted.size()) << what;
  for (std::int64_t i = 0; i < got.count(); ++i) {
    const double value = wanted[static_cast<std::size_t>(i)];
    ASSERT_NEAR(got[i], value, relative * std::abs(value) + absolute)
        << what << ", element " << i << " of " << got.count() << ", type "
        << static_cast<int>(got.type());
  }
}

void expect_thread_independent(const std::function<Array()>& make) {
  use_threads(1);
  const Array alone = make();
  use_threads(2);
  const Array together = make();
  EXPECT_TRUE(alone.same_bits(together)) << "bits depend on the thread count";
}

void use_threads(int threads) {
  session->use_threads(threads);
}

}  // namespace garonne::kernels::test

// What queues say to kernels: on which device, with how many threads.
#include "kernels/arrays.hpp"

#include "base/error.hpp"
#include "kernels/adafactor_update.hpp"
#include "kernels/attention_tile.hpp"
#include "kernels/bias.hpp"
#include "kernels/convert.hpp"
#include "kernels/cross_entropy.hpp"
#include "kernels/dropout.hpp"
#include "kernels/embedding.hpp"
#include "kernels/field_loss.hpp"
#include "kernels/gelu.hpp"
#include "kernels/initialise.hpp"
#include "kernels/instance_moments.hpp"
#include "kernels/instance_norm.hpp"
#include "kernels/lamb_update.hpp"
#include "kernels/layer_norm.hpp"
#include "kernels/momentum_update.hpp"
#include "kernels/optimizer_update.hpp"
#include "kernels/product.hpp"
#include "kernels/reduction.hpp"
#include "kernels/rms_norm.hpp"
#include "kernels/rotary.hpp"
#include "kernels/row_deal.hpp"
#include "kernels/scalar.hpp"
#include "kernels/session.hpp"
#include "kernels/sphere_products.hpp"
#include "kernels/sphere_transform.hpp"
#include "kernels/swiglu.hpp"

#include <string>

namespace garonne::kernels::test {

namespace {

constexpr ElementType type = ElementType::Float32;

struct Refusal {
  std::string kernel;
  std::function<void(const Queue&)> call;
};

// Every kernel on nothing: a host that went on would find nothing to do, or crash.
const Refusal refusals[] = {
    {"add_bias", [](const Queue& q) { add_bias(q, type, nullptr, nullptr, 0, 0); }},
    {"bias_gradient",
     [](const Queue& q) { bias_gradient(q, type, nullptr, nullptr, false, 0, 0); }},
    {"to_bfloat16", [](const Queue& q) { to_bfloat16(q, nullptr, nullptr, 0); }},
    {"accumulate_from",
     [](const Queue& q) { accumulate_from(q, type, nullptr, nullptr, 0, false); }},
    {"cross_entropy",
     [](const Queue& q) {
       cross_entropy(q, type, nullptr, nullptr, 1, false, nullptr, nullptr, 0, 0);
     }},
    {"gathered_cross_entropy",
     [](const Queue& q) { gathered_cross_entropy(q, nullptr, nullptr, 0, 0); }},
    {"gathered_cross_entropy_gradient",
     [](const Queue& q) { gathered_cross_entropy_gradient(q, nullptr, 1, nullptr, 0, 0); }},
    {"logit_statistics",
     [](const Queue& q) { logit_statistics(q, type, nullptr, nullptr, {}, nullptr, nullptr, 0); }},
    {"logit_gradient",
     [](const Queue& q) {
       logit_gradient(q, type, nullptr, nullptr, {}, nullptr, nullptr, nullptr, nullptr, 0);
     }},
    {"dropout_add",
     [](const Queue& q) { dropout_add(q, type, nullptr, nullptr, nullptr, {}, nullptr, 0, 1); }},
    {"attention_weights",
     [](const Queue& q) { attention_weights(q, type, {}, nullptr, nullptr, {}, nullptr); }},
    {"attention_weights_gradient",
     [](const Queue& q) {
       attention_weights_gradient(q, type, {}, nullptr, nullptr, nullptr, {}, nullptr);
     }},
    {"embedding_forward",
     [](const Queue& q) {
       embedding_forward(q, type, nullptr, nullptr, nullptr, nullptr, {}, nullptr, 0, 1, 1);
     }},
    {"embedding_backward",
     [](const Queue& q) {
       embedding_backward(q, type, nullptr, nullptr, nullptr, false, nullptr, false, {}, nullptr, 0,
                          1, 1, 0, 1);
     }},
    {"embedding_rows",
     [](const Queue& q) { embedding_rows(q, type, nullptr, nullptr, 0, 0, nullptr, 0, 1); }},
    {"embedding_rows_backward",
     [](const Queue& q) {
       embedding_rows_backward(q, type, nullptr, nullptr, 0, 0, nullptr, false, 0, 1);
     }},
    {"gelu_forward", [](const Queue& q) { gelu_forward(q, type, nullptr, nullptr, 0); }},
    {"gelu_backward", [](const Queue& q) { gelu_backward(q, type, nullptr, nullptr, nullptr, 0); }},
    {"rms_norm_forward",
     [](const Queue& q) {
       rms_norm_forward(q, type, nullptr, nullptr, 0, nullptr, nullptr, 0, 0);
     }},
    {"rms_norm_backward",
     [](const Queue& q) {
       rms_norm_backward(q, type, nullptr, nullptr, nullptr, nullptr, nullptr, false, nullptr,
                         false, nullptr, 0, 0);
     }},
    {"swiglu_forward", [](const Queue& q) { swiglu_forward(q, type, nullptr, nullptr, 0, 0); }},
    {"swiglu_backward",
     [](const Queue& q) { swiglu_backward(q, type, nullptr, nullptr, nullptr, 0, 0); }},
    {"rotate_heads",
     [](const Queue& q) { rotate_heads(q, type, nullptr, nullptr, nullptr, {}, false, 0, 1); }},
    {"fill_normal", [](const Queue& q) { fill_normal(q, type, nullptr, 0, {}, 1, 0); }},
    {"instance_norm_forward",
     [](const Queue& q) {
       instance_norm_forward(q, type, nullptr, nullptr, nullptr, 0, nullptr, nullptr, nullptr,
                             nullptr, 0, 0, 0);
     }},
    {"instance_norm_backward",
     [](const Queue& q) {
       instance_norm_backward(q, type, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr,
                              nullptr, nullptr, false, nullptr, 0, 0, 0);
     }},
    {"instance_norm_moments",
     [](const Queue& q) {
       instance_norm_moments(q, type, nullptr, {}, nullptr, nullptr, 0, 0, 0);
     }},
    {"instance_norm_apply",
     [](const Queue& q) {
       instance_norm_apply(q, type, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, 0, 0, 0);
     }},
    {"instance_norm_apply_backward",
     [](const Queue& q) {
       instance_norm_apply_backward(q, type, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr,
                                    nullptr, nullptr, 0, 0, 0);
     }},
    {"instance_moments_gradient",
     [](const Queue& q) {
       instance_moments_gradient(q, type, nullptr, {}, nullptr, nullptr, nullptr, {}, 0, 0, 0);
     }},
    {"gathered_statistics",
     [](const Queue& q) { gathered_statistics(q, type, {}, nullptr, nullptr); }},
    {"gathered_statistics_gradient",
     [](const Queue& q) { gathered_statistics_gradient(q, {}, nullptr, nullptr, nullptr); }},
    {"instance_parameter_gradients",
     [](const Queue& q) {
       instance_parameter_gradients(q, type, nullptr, nullptr, false, nullptr, false, 0, 0);
     }},
    {"field_norms", [](const Queue& q) { field_norms(q, {}, nullptr); }},
    {"field_norms_gradient", [](const Queue& q) { field_norms_gradient(q, {}, nullptr, nullptr); }},
    {"field_loss", [](const Queue& q) { field_loss(q, {}, nullptr); }},
    {"field_loss_gradient", [](const Queue& q) { field_loss_gradient(q, {}, {}, nullptr); }},
    {"gathered_field_loss", [](const Queue& q) { gathered_field_loss(q, {}, nullptr); }},
    {"gathered_field_loss_gradient",
     [](const Queue& q) { gathered_field_loss_gradient(q, {}, {}, nullptr); }},
    {"gather_rows", [](const Queue& q) { gather_rows(q, nullptr, {}, nullptr, 0, 0, 0); }},
    {"deal_rows", [](const Queue& q) { deal_rows(q, nullptr, {}, nullptr, 0, 0, 0); }},
    {"mean_of", [](const Queue& q) { mean_of(q, {}, nullptr); }},
    {"mean_of_gradient", [](const Queue& q) { mean_of_gradient(q, {}, 1, nullptr); }},
    {"layer_norm_forward",
     [](const Queue& q) {
       layer_norm_forward(q, type, nullptr, nullptr, nullptr, 0, nullptr, nullptr, nullptr, 0, 1);
     }},
    {"layer_norm_backward",
     [](const Queue& q) {
       layer_norm_backward(q, type, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, false,
                           nullptr, nullptr, false, nullptr, 0, 1);
     }},
    {"adamw_update",
     [](const Queue& q) {
       adamw_update(q, type, nullptr, nullptr, nullptr, nullptr, 0, {}, {.value = 1}, nullptr);
     }},
    {"lamb_update",
     [](const Queue& q) {
       lamb_update(q, type, nullptr, nullptr, nullptr, nullptr, 0, {}, {.value = 1}, nullptr);
     }},
    {"add_lamb_squares",
     [](const Queue& q) {
       add_lamb_squares(q, type, nullptr, nullptr, nullptr, nullptr, 0, {}, {.value = 1}, nullptr);
     }},
    {"momentum_update",
     [](const Queue& q) {
       momentum_update(q, type, nullptr, nullptr, nullptr, 0, {}, {.value = 1}, {.value = 1},
                       nullptr);
     }},
    {"adafactor_update",
     [](const Queue& q) {
       adafactor_update(q, type, nullptr, nullptr, nullptr, nullptr, 0, {}, {}, {.value = 1},
                        nullptr);
     }},
    {"add_adafactor_sums",
     [](const Queue& q) {
       add_adafactor_sums(q, type, nullptr, nullptr, nullptr, {}, {}, {.value = 1}, nullptr);
     }},
    {"add_adafactor_squares",
     [](const Queue& q) {
       add_adafactor_squares(q, type, nullptr, nullptr, nullptr, nullptr, {}, {}, {.value = 1},
                             nullptr);
     }},
    {"openblas_product",
     [](const Queue& q) {
       openblas_product(q, type, false, false, 0, 0, 0, 1, nullptr, 0, nullptr, 0, 0, nullptr, 0);
     }},
    {"add_sum_of_squares",
     [](const Queue& q) { add_sum_of_squares(q, type, nullptr, 0, nullptr); }},
    {"add_scaled", [](const Queue& q) { add_scaled(q, {}, 1, nullptr); }},
    {"clip_scale", [](const Queue& q) { clip_scale(q, nullptr, nullptr, 0, nullptr, nullptr); }},
    {"add_into", [](const Queue& q) { add_into(q, type, nullptr, nullptr, 0); }},
    {"sphere_analysis", [](const Queue& q) { sphere_analysis(q, {}); }},
    {"sphere_synthesis", [](const Queue& q) { sphere_synthesis(q, {}); }},
    {"sphere_fold", [](const Queue& q) { sphere_fold(q, {}, nullptr, nullptr); }},
    {"sphere_unfold", [](const Queue& q) { sphere_unfold(q, {}, nullptr, nullptr); }},
    {"sphere_coefficients", [](const Queue& q) { sphere_coefficients(q, {}, nullptr, nullptr); }},
    {"sphere_series", [](const Queue& q) { sphere_series(q, {}, nullptr, nullptr); }},
};

// The message of the refusal; empty where the kernel went on.
std::string refusal_of(const Refusal& refusal, const Queue& queue) {
  try {
    refusal.call(queue);
  } catch (const InternalError& error) {
    return error.what();
  }
  return "";
}

TEST(Queue, KernelsOfTheHostRefuseOtherDevicesByName) {
  int stream = 0;
  for (const Refusal& refusal : refusals) {
    const std::string cuda = refusal_of(refusal, {.device = DeviceKind::Cuda});
    EXPECT_NE(cuda.find(refusal.kernel + "("), std::string::npos) << refusal.kernel << ": " << cuda;
    EXPECT_NE(cuda.find("queue of cuda"), std::string::npos) << refusal.kernel << ": " << cuda;
    const std::string streamed = refusal_of(refusal, {.native = &stream});
    EXPECT_NE(streamed.find("stream"), std::string::npos) << refusal.kernel << ": " << streamed;
  }
}

TEST(Queue, TheEmulatedDeviceHasTheHostsKernels) {
  const Array x = random_array(type, 100, 1);
  Array y(type, 100);
  Array emulated(type, 100);
  gelu_forward(host, type, x.data(), y.data(), 100);
  gelu_forward({.device = DeviceKind::Emulated}, type, x.data(), emulated.data(), 100);
  EXPECT_TRUE(y.same_bits(emulated));
}

TEST(Queue, StreamsAreMadeKnownWhereThereIsCuda) {
  EXPECT_THROW(StreamSession(Queue{}), InternalError);
  EXPECT_THROW(StreamSession({.device = DeviceKind::Cuda}), Error);
}

TEST(Queue, AllowsThreadsOfTheSession) {
  use_threads(2);
  EXPECT_EQ(threads_of({}), 2);
  EXPECT_EQ(threads_of({.threads = 1}), 1);
  EXPECT_EQ(threads_of({.threads = 2}), 2);
  EXPECT_EQ(threads_of({.threads = 3}), 2);
  use_threads(1);
  EXPECT_EQ(threads_of({}), 1);
  EXPECT_EQ(threads_of({.threads = 2}), 1);
  use_threads(2);
}

}  // namespace

}  // namespace garonne::kernels::test

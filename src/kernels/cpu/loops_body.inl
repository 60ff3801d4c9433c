// All inner loops and their table; included inside the namespace of an instruction set.
// clang-format off: each file uses those above it
#include "kernels/cpu/loops_exponential.inl"
#include "kernels/cpu/loops_philox.inl"
#include "kernels/cpu/loops_random.inl"
#include "kernels/cpu/loops_norm.inl"
#include "kernels/cpu/loops_elements.inl"
#include "kernels/cpu/loops_losses.inl"
#include "kernels/cpu/loops_instance.inl"
#include "kernels/cpu/loops_rms_norm.inl"
#include "kernels/cpu/loops_llama.inl"
#include "kernels/cpu/loops_attention.inl"
// clang-format on

// Compiled apart: without contraction of products and sums, what is compiled with it being other
// code.
extern const Loop<AdamWArguments> adamw_loops;
extern const Loop<MomentumArguments> momentum_loops;
extern const Loop<LambArguments> lamb_loops;
extern const Loop<LambSquaresArguments> lamb_squares_loops;
extern const AdafactorLoops adafactor_loops;
extern const Loop<FillNormalArguments> fill_normal_loops;
// Compiled apart: they are long to compile.
extern const SphereLoops sphere_loops;

extern const Loops table = {
    GARONNE_LOOPS_NAME,
    {{layer_norm_forward<float>, layer_norm_forward<double>, layer_norm_forward<BFloat16>}},
    {{layer_norm_backward<float>, layer_norm_backward<double>, layer_norm_backward<BFloat16>}},
    {{column_sum<float>, column_sum<double>, column_sum<BFloat16>}},
    {{dropout_add<float>, dropout_add<double>, dropout_add<BFloat16>}},
    {{embedding_forward<float>, embedding_forward<double>, embedding_forward<BFloat16>}},
    {{embedding_backward<float>, embedding_backward<double>, embedding_backward<BFloat16>}},
    {{cross_entropy<float>, cross_entropy<double>, cross_entropy<BFloat16>}},
    {{logit_statistics<float>, logit_statistics<double>, logit_statistics<BFloat16>}},
    {{logit_gradient<float>, logit_gradient<double>, logit_gradient<BFloat16>}},
    {{instance_shift<float>, instance_shift<double>, instance_shift<BFloat16>}},
    {{instance_statistics<float>, instance_statistics<double>, instance_statistics<BFloat16>}},
    {{instance_products<float>, instance_products<double>, instance_products<BFloat16>}},
    {{instance_forward<float>, instance_forward<double>, instance_forward<BFloat16>}},
    {{instance_backward<float>, instance_backward<double>, instance_backward<BFloat16>}},
    {{gelu_forward<float>, gelu_forward<double>, gelu_forward<BFloat16>}},
    {{gelu_backward<float>, gelu_backward<double>, gelu_backward<BFloat16>}},
    {{add_bias<float>, add_bias<double>, add_bias<BFloat16>}},
    {{rms_norm_forward<float>, rms_norm_forward<double>, rms_norm_forward<BFloat16>}},
    {{rms_norm_backward<float>, rms_norm_backward<double>, rms_norm_backward<BFloat16>}},
    {{swiglu_forward<float>, swiglu_forward<double>, swiglu_forward<BFloat16>}},
    {{swiglu_backward<float>, swiglu_backward<double>, swiglu_backward<BFloat16>}},
    {{rotate_heads<float>, rotate_heads<double>, rotate_heads<BFloat16>}},
    {{attention_weights<float>, attention_weights<double>, nullptr}},
    {{attention_weights_gradient<float>, attention_weights_gradient<double>, nullptr}},
    &adamw_loops,
    &momentum_loops,
    &lamb_loops,
    &lamb_squares_loops,
    &adafactor_loops,
    {{combine<float, float>, combine<double, double>, combine<BFloat16, BFloat16>}},
    {{combine<float, float>, combine<double, double>, combine<BFloat16, float>}},
    {{combine<float, BFloat16>, nullptr, nullptr}},
    {{sum_of_squares<float>, sum_of_squares<double>, nullptr}},
    &fill_normal_loops,
    &sphere_loops,
};

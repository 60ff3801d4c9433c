// What has the same bits everywhere, for any processor; compiled without contraction.
#include "kernels/adafactor_step.hpp"
#include "kernels/adamw_step.hpp"
#include "kernels/cpu/loops_prelude.hpp"
#include "kernels/lamb_step.hpp"
#include "kernels/momentum_step.hpp"
#include "kernels/normal_numbers.hpp"

#define GARONNE_VECTOR_BYTES 16
namespace garonne::kernels::baseline {
#include "kernels/cpu/loops_exact_body.inl"
}  // namespace garonne::kernels::baseline

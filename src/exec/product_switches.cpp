#include "exec/product_switches.hpp"

#include <ATen/Context.h>
#include <fmt/format.h>

#include <string>

#include "base/error.hpp"

namespace garonne::exec {

void set_product_rounding(ProductRounding rounding) {
  const bool allowed = rounding == ProductRounding::Tf32;
  at::Context& context = at::globalContext();
  context.setAllowTF32CuBLAS(allowed);
  // Which allows it where nobody says otherwise.
  context.setAllowTF32CuDNN(allowed);
  expect(context.allowTF32CuBLAS() == allowed && context.allowTF32CuDNN() == allowed,
         "the tensor library does not take the rounding of products");
}

void check_rounding_override(const char* value, ProductRounding rounding) {
  const std::string text = value == nullptr ? "" : value;
  const bool fits = text.empty() || (text == "0" && rounding == ProductRounding::Ieee);
  if (fits) return;
  throw ConfigError("train.products", product_rounding_name(rounding),
                    fmt::format("is not what products of this process do: NVIDIA_TF32_OVERRIDE = "
                                "\"{}\" goes before it; unset that",
                                text));
}

}  // namespace garonne::exec

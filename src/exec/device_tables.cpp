#include "exec/device_tables.hpp"

#include <ATen/Functions.h>

#include <cstddef>
#include <span>

#include "base/error.hpp"
#include "exec/host_access.hpp"
#include "nn/tensor_options.hpp"

namespace garonne::exec {

nn::DeviceTables make_device_tables(const Queue& queue, const nn::Model& model, Precision precision,
                                    Staging& staging) {
  return fill_device_tables(model, precision, staging, [&](const nn::ConstantTable& table) {
    return at::empty({table.bytes}, nn::tensor_options(queue, at::kByte));
  });
}

nn::DeviceTables fill_device_tables(
    const nn::Model& model, Precision precision, Staging& staging,
    const std::function<at::Tensor(const nn::ConstantTable&)>& place) {
  nn::DeviceTables tables;
  for (const nn::ConstantTable& table : nn::constant_tables(model, precision)) {
    const at::Tensor copy = place(table);
    expect(copy.numel() >= table.bytes, "no room on the device for the table " + table.name);
    const auto* const first = static_cast<const std::byte*>(table.on_host());
    copy_in(copy, std::span(first, static_cast<std::size_t>(table.bytes)), staging, table.name);
    tables.emplace(table.name, copy);
  }
  return tables;
}

}  // namespace garonne::exec

#include <fmt/format.h>

#include "plan/chain/chain_solver.hpp"
#include "plan/chain/rotor_table.hpp"

namespace garonne::plan {

ChainSolver rotor_solver() {
  const auto solve = [](const Chain& chain, std::int64_t budget_bytes,
                        const ChainSolverOptions& options) {
    RotorOptions table_options;
    table_options.slots = options.slots;
    table_options.table_bytes = options.table_bytes;
    const RotorTable table(chain, budget_bytes, table_options);
    ChainAnswer answer;
    answer.operations = table.sequence(budget_bytes);
    answer.remark =
        table.slots() == 0
            ? "exact in bytes"
            : fmt::format("{} slots: as fast as any at {} bytes less ({:.3f} %)", table.slots(),
                          table.loss_bound_bytes(), 100 * table.loss_bound());
    return answer;
  };
  const auto minimum = [](const Chain& chain) {
    const RotorModel model(chain);
    return model.value(0) + RotorMinimum(model).bytes(0, model.blocks() - 1);
  };
  return {"rotor", "the fastest of all in which what is stored stays until its backward", solve,
          minimum};
}

}  // namespace garonne::plan

// Values that rooms above the ground floor would register.
#pragma once

#include "base/config.hpp"

namespace garonne::test {

inline Choices some_choices() {
  return {{"model.kind", {"gpt", "fno"}},
          {"grid.schedule", {"1f1b", "gpipe"}},
          {"grid.transport", {"auto", "mpi"}},
          {"memory.plan", {"auto", "keep-all", "full"}},
          {"memory.allow", {"auto", "recompute", "offload-activations"}},
          {"train.loss", {"auto", "h1"}},
          {"optimizer.name", {"adamw"}},
          {"optimizer.schedule", {"cosine", "constant", "warmup-stable-decay"}}};
}

}  // namespace garonne::test

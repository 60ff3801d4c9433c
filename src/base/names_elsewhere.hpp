// What other programs call what a run file says.
#pragma once

#include <string>

namespace garonne {

// The key of a run file, or the option of `garonne train`, that nanoGPT, Megatron-LM, transformers
// or neuraloperator know by this name; empty where none is known. Of a name with a section or with
// dashes before it, as "model.n_embd" or "--n-embd", the last part counts; - is as good as _.
std::string name_of_elsewhere(const std::string& name);

}  // namespace garonne

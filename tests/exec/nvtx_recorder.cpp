// A profiler that NVTX loads: it keeps the ranges that are pushed and popped, for the test.
#include <nvtx3/nvToolsExt.h>

#include <mutex>
#include <string>

namespace {

std::mutex mutex;
std::string recorded;

int push(const char* name) {
  const std::lock_guard lock(mutex);
  recorded += std::string("push ") + name + "\n";
  return 0;
}

int pop() {
  const std::lock_guard lock(mutex);
  recorded += "pop\n";
  return 0;
}

}  // namespace

extern "C" {

int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t get_table) {
  const auto* const callbacks =
      static_cast<const NvtxExportTableCallbacks*>(get_table(NVTX_ETID_CALLBACKS));
  NvtxFunctionTable functions = nullptr;
  unsigned int size = 0;
  if (callbacks == nullptr ||
      callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE, &functions, &size) == 0 ||
      size <= NVTX_CBID_CORE_RangePop)
    return 0;
  *functions[NVTX_CBID_CORE_RangePushA] = reinterpret_cast<NvtxFunctionPointer>(push);
  *functions[NVTX_CBID_CORE_RangePop] = reinterpret_cast<NvtxFunctionPointer>(pop);
  return 1;
}

// What was there since the last call, a line each.
const char* take_recorded_ranges() {
  static std::string taken;
  const std::lock_guard lock(mutex);
  taken.swap(recorded);
  recorded.clear();
  return taken.c_str();
}

}  // extern "C"

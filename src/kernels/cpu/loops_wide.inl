// Vectors along the channels.

template <typename T>
struct Wide {
  // One register of this processor, and as many channels as always go together.
  typedef T Register
      __attribute__((vector_size(GARONNE_VECTOR_BYTES), aligned(sizeof(T)), may_alias));
  typedef T Line __attribute__((vector_size(64), aligned(sizeof(T)), may_alias));
  static constexpr std::int64_t lanes = GARONNE_VECTOR_BYTES / sizeof(T);
  static constexpr std::int64_t line = 64 / sizeof(T);
  // Of a panel: [lines][real, imaginary][channels of a line].
  static constexpr std::int64_t columns = sphere_panel_bytes / sizeof(T);
  static constexpr std::int64_t lines = columns / (2 * line);
  static constexpr std::int64_t channels = lines * line;
};

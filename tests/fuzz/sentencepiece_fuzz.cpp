// Models of SentencePiece, and a text that they are used on.
#include <string_view>
#include <vector>

#include "data/tokenizers/sentencepiece_encoder.hpp"
#include "fuzz/fuzz_target.hpp"

using namespace garonne;

int LLVMFuzzerTestOneInput(const std::uint8_t* input, std::size_t size) {
  return fuzz::take_or_refuse([&] {
    const std::string_view bytes(reinterpret_cast<const char*>(input), size);
    const data::SentencePieceRules rules(
        data::read_sentencepiece(bytes, "some.model", FileOwner::Run));
    data::SectionEncoder encoder(rules);
    std::vector<std::uint32_t> tokens;
    for (const std::string_view text : {"The river, DON'T e\xCC\x81 \xEF\xAC\x81 iver<left>  x",
                                        "\xFF\xE2\x96\x81 \xF0\x9F\x98\x80\n\t "}) {
      encoder.encode(text, {}, tokens);
      const auto cut = rules.normaliser.find_cut(text, 1, /*complete=*/true);
      fuzz::hold(!cut || (*cut > 0 && *cut < text.size()), "a cut is inside a text");
    }
    for (const std::uint32_t token : tokens)
      fuzz::hold(token < rules.model.pieces.size(), "tokens are in the vocabulary");
  });
}

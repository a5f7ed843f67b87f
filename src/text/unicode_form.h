#pragma once

#include "text/aligned_text.h"

namespace jerboa {

enum class UnicodeForm { nfc, nfd, nfkc, nfkd };

/// Brings a text into a Unicode normalization form. Text that is already in the form costs one table lookup per
/// character; bytes that are not UTF-8 stay as they are.
void normalize(AlignedText& text, UnicodeForm form);

}  // namespace jerboa

#pragma once

#include "text/aligned_text.h"

namespace jerboa {

enum class UnicodeForm { nfc, nfd, nfkc, nfkd };

/// Brings a text into a Unicode normalization form. Text that is in the form already costs one table look-up a
/// character; bytes that are not UTF-8 stay as they are.
void normalize(AlignedText& text, UnicodeForm form);

}  // namespace jerboa

#pragma once

// The whole public interface.
#include <jerboa/base/error.h>
#include <jerboa/base/file.h>
#include <jerboa/base/host_tensor.h>
#include <jerboa/base/random.h>
#include <jerboa/compile/export.h>
#include <jerboa/frontend/compile.h>
#include <jerboa/frontend/data.h>
#include <jerboa/frontend/model.h>
#include <jerboa/frontend/nn.h>
#include <jerboa/frontend/trainer.h>
#include <jerboa/generate/sampler.h>
#include <jerboa/io/gguf.h>
#include <jerboa/io/safetensors.h>
#include <jerboa/ir/graph.h>
#include <jerboa/language/language_model.h>
#include <jerboa/language/text_encoder.h>
#include <jerboa/models/family.h>
#include <jerboa/models/save_folder.h>
#include <jerboa/ops/ops.h>
#include <jerboa/runtime/session.h>
#include <jerboa/text/chat_template.h>
#include <jerboa/text/tokenizer.h>
#include <jerboa/transform/grad.h>
#include <jerboa/transform/optimizer.h>

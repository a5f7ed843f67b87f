#pragma once

#include <string>

#include <jerboa/lower/program.h>

namespace jerboa::wgsl {

/// Adds to a program its steps as phases of one dispatch; returns why not if that is not possible, otherwise nothing.
///
/// The dispatch has as many workgroups as run at the same time; each does its part of a phase, and counts that it is
/// done. Activations are passed as atomic words, one for each element, which no phase writes twice: all hold a mark
/// that means «not written» when a run begins, and a reader loads a word until the mark is gone. So it does not matter
/// that stores may arrive after the counter that says when to look, whereas plain stores and loads may meet old values
/// in caches. Where only one product reads attention's result, its workgroups put the parts together as they copy them,
/// which saves a phase. Parameters and caches that are operands of the same kernel in
/// different layers are pooled, because a shader cannot choose a binding while it runs; a table says where each is. The
/// pools become buffers of the program, into which hosts move the storage.
std::string make_persistent(Program& program, const Target& target);

}  // namespace jerboa::wgsl

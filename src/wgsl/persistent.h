#pragma once

#include <string>

#include <jerboa/lower/program.h>

namespace jerboa::wgsl {

/// Adds a program's steps to it as phases of one dispatch; returns the reason if that is not possible, otherwise an
/// empty string.
///
/// The dispatch has as many workgroups as run concurrently; each does its part of a phase and counts that it is done.
/// Activations are passed as atomic words, one per element, which no phase writes twice: all hold a mark that means
/// «not written» when a run begins, and a reader polls a word until the mark is gone. Stores may therefore arrive after
/// the counter that says when to look, whereas plain stores and loads may hit stale cache lines. If only one product
/// reads attention's result, its workgroups combine the parts while they copy them, which saves a phase. Parameters and
/// caches that are operands of the same kernel in different layers are pooled, because a shader cannot choose a binding
/// at run time; a table says where each is. The pools become buffers of the program, into which hosts move the storage.
std::string make_persistent(Program& program, const Target& target);

}  // namespace jerboa::wgsl

/* compile_model CONFIG OPTIONS PROGRAM: compiles a config.json, in plain C, through the shared library alone.
   compile_model GRAPHS PROGRAM: the same for graphs, as jerboa_compile_graphs takes them. */
#include <stdio.h>
#include <stdlib.h>

#include <jerboa/c_api/jerboa_c.h>

static char* read_file(const char* path, size_t* size) {
  FILE* file = fopen(path, "rb");
  if (file == NULL) return NULL;
  fseek(file, 0, SEEK_END);
  *size = (size_t)ftell(file);
  rewind(file);
  char* text = malloc(*size + 1);
  if (text == NULL || fread(text, 1, *size, file) != *size) exit(3);
  fclose(file);
  return text;
}

int main(int count, char** arguments) {
  size_t input_size = 0, options_size = 0;
  if (count < 3 || count > 4 || jerboa_abi_version() != JERBOA_ABI_VERSION) return 2;
  const int has_options = count == 4;
  char* input = read_file(arguments[1], &input_size);
  char* options = has_options ? read_file(arguments[2], &options_size) : NULL;
  if (input == NULL || (has_options && options == NULL)) return 3;
  jerboa_buffer* program = NULL;
  const jerboa_status status = has_options ? jerboa_compile_model(input, input_size, options, options_size, &program)
                                           : jerboa_compile_graphs(input, input_size, &program);
  if (status != JERBOA_OK) {
    fprintf(stderr, "%s\n", jerboa_last_error());
    return 1;
  }
  FILE* out = fopen(arguments[count - 1], "wb");
  if (out == NULL) return 3;
  fwrite(jerboa_buffer_data(program), 1, jerboa_buffer_size(program), out);
  fclose(out);
  jerboa_buffer_free(program);
  free(input);
  free(options);
  return 0;
}

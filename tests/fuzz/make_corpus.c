/* make_corpus.c: small files of every kind that is read: ours, and those that other programs make,
 * and some that must be refused. Writes them below the folder that it is given;
 * tests/fuzz/make_corpus.sh builds and starts it.
 *
 * Token files are made here with small chunks; the program's own are of the same kinds, but of 128
 * KiB. */
#include <hdf5.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fuzz_state.h"
#include "tutti/base/file.h"
#include "tutti/base/options.h"

static const char *top;

static const char *at(const char *name)
{
    static char path[4096];
    snprintf(path, sizeof path, "%s/%s", top, name);
    return path;
}

static void must(bool done, const char *what)
{
    if (!done) {
        fprintf(stderr, "make_corpus: cannot make %s\n", what);
        exit(1);
    }
}

/* --- checkpoints ------------------------------------------------------------------------------ */

static void ours(const char *name, int tensors)
{
    static fuzz_state s;
    tt_err err;
    fuzz_state_make(&s, tensors);
    s.step = 3, s.tokens = 1000, s.scale = 1;
    must(tt_ckpt_save(NULL, at(name), &s.state, NULL, 3, &err) == TT_OK, name);
}

typedef struct kind {
    H5F_libver_t from, to;
    hid_t type;  /* of numbers */
    bool chunks; /* chunked, shuffled and compressed */
    bool texts;  /* with attributes and strings of variable length, as h5py writes them */
} kind;

static hid_t new_file(const char *name, const kind *k)
{
    hid_t access = H5Pcreate(H5P_FILE_ACCESS);
    H5Pset_libver_bounds(access, k->from, k->to);
    hid_t file = H5Fcreate(at(name), H5F_ACC_TRUNC, H5P_DEFAULT, access);
    must(file >= 0, name);
    H5Pclose(access);
    return file;
}

static void text(hid_t place, const char *name, bool attribute, bool variable, const char *value)
{
    hid_t type = H5Tcopy(H5T_C_S1), space = H5Screate(H5S_SCALAR), made;
    H5Tset_size(type, variable ? H5T_VARIABLE : strlen(value) + 1);
    const void *from = variable ? (const void *)&value : value;
    if (attribute) {
        made = H5Acreate2(place, name, type, space, H5P_DEFAULT, H5P_DEFAULT);
        must(H5Awrite(made, type, from) >= 0, name);
        H5Aclose(made);
    } else {
        made = H5Dcreate2(place, name, type, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
        must(H5Dwrite(made, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, from) >= 0, name);
        H5Dclose(made);
    }
    H5Tclose(type);
    H5Sclose(space);
}

/* chunk 0: contiguous. */
static void numbers(hid_t place, const char *name, hid_t type, int dims, const hsize_t *dim,
                    hsize_t chunk, bool packed, hid_t memory, const void *value)
{
    const hsize_t chunks[2] = {chunk, chunk}, none[2] = {H5S_UNLIMITED, H5S_UNLIMITED};
    hid_t list = H5Pcreate(H5P_DATASET_CREATE),
          space = H5Screate_simple(dims, dim, chunk > 0 ? none : NULL);
    H5Pset_obj_track_times(list, false);
    if (chunk > 0) {
        H5Pset_chunk(list, dims, chunks);
    }
    if (packed) {
        H5Pset_shuffle(list);
        H5Pset_deflate(list, 6);
    }
    hid_t set = H5Dcreate2(place, name, type, space, H5P_DEFAULT, list, H5P_DEFAULT);
    must(set >= 0 && H5Dwrite(set, memory, H5S_ALL, H5S_ALL, H5P_DEFAULT, value) >= 0, name);
    H5Dclose(set);
    H5Sclose(space);
    H5Pclose(list);
}

/* Weights as other programs hand them over: /params alone. */
static void foreign(const char *name, const kind *k, int tensors)
{
    static fuzz_state s;
    fuzz_state_make(&s, tensors);
    hid_t file = new_file(name, k);
    hid_t group = H5Gcreate2(file, "params", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    for (int i = 0; i < tensors; i++) {
        const hsize_t dim[2] = {(hsize_t)s.row[i].dim[0], (hsize_t)s.row[i].dim[1]};
        numbers(group, s.row[i].name + strlen("params/"), k->type, s.row[i].dims, dim, k->chunks,
                k->chunks, H5T_NATIVE_FLOAT, s.value[i]);
    }
    if (k->texts) {
        text(file, "format", true, true, "tutti-checkpoint-1");
        text(file, "config", false, true, "model:\n  layers: 1\n");
    }
    H5Gclose(group);
    H5Fclose(file);
}

/* --- token files ------------------------------------------------------------------------------ */

static void part(hid_t file, const char *tokens, const char *documents, const kind *k)
{
    enum { TOKENS = 90, DOCUMENTS = 4 };
    int id[TOKENS];
    const long long offset[DOCUMENTS + 1] = {0, 20, 20, 50, TOKENS};
    const hsize_t count = TOKENS, offsets = DOCUMENTS + 1;
    for (int i = 0; i < TOKENS; i++) {
        id[i] = i * i % 200;
    }
    numbers(file, tokens, k->type, 1, &count, k->chunks ? 32 : 0, false, H5T_NATIVE_INT, id);
    numbers(file, documents, H5T_STD_I64LE, 1, &offsets, 0, false, H5T_NATIVE_LLONG, offset);
}

static void token_file(const char *name, const kind *k, bool valid)
{
    const long long vocab = 257;
    hid_t file = new_file(name, k), space = H5Screate(H5S_SCALAR);
    hid_t made = H5Acreate2(file, "vocab", H5T_STD_I64LE, space, H5P_DEFAULT, H5P_DEFAULT);
    must(H5Awrite(made, H5T_NATIVE_LLONG, &vocab) >= 0, name);
    H5Aclose(made);
    H5Sclose(space);
    text(file, "format", true, k->texts, "tutti-tokens-1");
    text(file, "tokenizer", false, k->texts, "bytes");
    part(file, "tokens", "documents", k);
    if (valid) {
        H5Gclose(H5Gcreate2(file, "valid", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
        part(file, "valid/tokens", "valid/documents", k);
    }
    H5Fclose(file);
}

/* --- configurations --------------------------------------------------------------------------- */

static void plain(const char *name, const char *bytes, size_t length)
{
    tt_err err;
    must(tt_write_file(at(name), bytes, length, &err) == TT_OK, name);
}

static void configurations(void)
{
    static const char usual[] = "model: {layers: 2, heads: 4, channels: 64, context: 32}\n"
                                "data: {train: corpus.h5, mode: documents}\n"
                                "optim:\n  lr: 3.0e-4   # a comment\n  schedule: 'cosine'\n"
                                "precision:\n  compute: \"bf16\"\n  fp32_ops: [head, norm]\n"
                                "run:\n";
    /* Behind the text, which here is nothing, each up to a NUL byte. */
    static const char overrides[] =
        "\0optim.lr=1e-3\0memory.recompute=auto:8GiB\0precision.fp32_ops=[head,qkv]\0"
        "precision.loss_scale=dynamic\0run.exact=true\0data.seed=-1";
    static const char odd[] =
        "\xef\xbb\xbfmodel: &a {layers: *a}\n--- !tag\n? [x]\n: |\n  text\n...\n";
    tt_config config;
    tt_text every = {0};
    tt_config_preset(&config);
    tt_config_text(&config, false, &every);
    plain("config/every-key.yaml", every.data, every.length);
    plain("config/usual.yaml", usual, sizeof usual - 1);
    plain("config/overrides", overrides, sizeof overrides - 1);
    plain("config/odd.yaml", odd, sizeof odd - 1);
    tt_text_free(&every);
}

int main(int argc, char **argv)
{
    top = argc == 2 ? argv[1] : ".";
    const H5F_libver_t old = H5F_LIBVER_EARLIEST, v18 = H5F_LIBVER_V18, v110 = H5F_LIBVER_V110;
    configurations();
    ours("checkpoint/few.h5", FUZZ_FEW);
    ours("checkpoint/many.h5", FUZZ_MOST);
    foreign("checkpoint/foreign-few.h5", &(kind){old, v110, H5T_IEEE_F32LE, false, true}, FUZZ_FEW);
    foreign("checkpoint/foreign-many.h5", &(kind){old, v110, H5T_IEEE_F64LE, false, false},
            FUZZ_MOST);
    foreign("checkpoint/foreign-packed.h5", &(kind){old, v110, H5T_IEEE_F32BE, true, false},
            FUZZ_FEW);
    foreign("checkpoint/foreign-18.h5", &(kind){v18, v18, H5T_IEEE_F32LE, false, true}, FUZZ_FEW);
    foreign("checkpoint/foreign-110.h5", &(kind){v110, v110, H5T_IEEE_F32LE, false, true},
            FUZZ_MOST);
    token_file("tokens/ours.h5", &(kind){old, v110, H5T_STD_U16LE, true, false}, true);
    token_file("tokens/wide.h5", &(kind){old, v110, H5T_STD_U32LE, true, false}, false);
    token_file("tokens/foreign.h5", &(kind){old, v110, H5T_STD_U16BE, false, true}, true);
    token_file("tokens/foreign-18.h5", &(kind){v18, v18, H5T_STD_U16LE, true, true}, false);
    token_file("tokens/foreign-110.h5", &(kind){v110, v110, H5T_STD_I32LE, true, false}, true);
    return 0;
}

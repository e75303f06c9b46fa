/* keep_modules.c: linked into every program of CONFIG=asan, and only there.
 *
 * Open MPI unloads its plug-ins at the end; a leak of theirs then has no name that tests/lsan.supp could
 * match. So here nothing is unloaded: this dlclose takes the place of the C library's. */
__attribute__((visibility("default"))) int dlclose(void *handle);

int dlclose(void *handle)
{
    (void)handle;
    return 0;
}

/* h5_tour.h: everything that HDF5 can be asked about a file: groups by every index, datasets and
 * their elements, the root's attributes. Whatever it answers, it must survive. */
#ifndef TT_H5_TOUR_H
#define TT_H5_TOUR_H

#include <hdf5.h>
#include <stdlib.h>

enum { TOUR_MOST = 100000 /* elements that are read */, TOUR_DEEPEST = 20 };

/* The values of a dataset or attribute: texts as they are, numbers as doubles. */
static void tour_values(hid_t object, hid_t type, hid_t space)
{
    const hssize_t count = H5Sget_simple_extent_npoints(space);
    const size_t size = H5Tget_size(type);
    const int attribute = H5Iget_type(object) == H5I_ATTR, text = H5Tget_class(type) == H5T_STRING;
    const hid_t memory = text ? type : H5T_NATIVE_DOUBLE;
    if (count < 0 || count > TOUR_MOST || size == 0 || size > TOUR_MOST || (text && count != 1)) {
        return;
    }
    void *values = calloc((size_t)count + 1, text ? size : sizeof(double));
    const herr_t got = attribute ? H5Aread(object, memory, values)
                                 : H5Dread(object, memory, H5S_ALL, H5S_ALL, H5P_DEFAULT, values);
    if (got >= 0 && H5Tis_variable_str(type) > 0) {
        H5Dvlen_reclaim(type, space, H5P_DEFAULT, values);
    }
    free(values);
}

static herr_t tour_link(hid_t group, const char *name, const H5L_info_t *info, void *depth);

static void tour_object(hid_t object, int depth)
{
    static const H5_index_t index[] = {H5_INDEX_NAME, H5_INDEX_CRT_ORDER};
    H5G_info_t info;
    char name[64];
    if (H5Iget_type(object) == H5I_DATASET) {
        hid_t space = H5Dget_space(object), type = H5Dget_type(object);
        tour_values(object, type, space);
        H5Dget_storage_size(object);
        H5Sclose(space);
        H5Tclose(type);
        return;
    }
    for (int i = 0; i < 2 && depth < TOUR_DEEPEST; i++) {
        hsize_t from = 0;
        H5Literate(object, index[i], H5_ITER_INC, &from, tour_link, &depth);
        for (hsize_t k = 0; H5Gget_info(object, &info) >= 0 && k < info.nlinks && k < 20; k++) {
            H5Lget_name_by_idx(object, ".", index[i], H5_ITER_INC, k, name, sizeof name,
                               H5P_DEFAULT);
            H5Oclose(H5Oopen_by_idx(object, ".", index[i], H5_ITER_INC, k, H5P_DEFAULT));
        }
    }
    H5Pclose(H5Gget_create_plist(object));
    H5Lexists(object, "params", H5P_DEFAULT);
    H5Lexists(object, "nothing of that name", H5P_DEFAULT);
}

static herr_t tour_link(hid_t group, const char *name, const H5L_info_t *info, void *depth)
{
    hid_t object = info->type == H5L_TYPE_HARD ? H5Oopen(group, name, H5P_DEFAULT) : -1;
    if (object >= 0) {
        tour_object(object, *(int *)depth + 1);
        H5Oclose(object);
    }
    return 0;
}

static void tour(const char *path)
{
    static const char *const attributes[] = {"format", "vocab", "none"};
    H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
    hid_t file = H5Fopen(path, H5F_ACC_RDONLY, H5P_DEFAULT);
    for (int i = 0; i < 3 && file >= 0; i++) {
        hid_t attribute =
            H5Aexists(file, attributes[i]) > 0 ? H5Aopen(file, attributes[i], H5P_DEFAULT) : -1;
        if (attribute >= 0) {
            hid_t space = H5Aget_space(attribute), type = H5Aget_type(attribute);
            tour_values(attribute, type, space);
            H5Sclose(space);
            H5Tclose(type);
            H5Aclose(attribute);
        }
    }
    hid_t root = file >= 0 ? H5Oopen(file, "/", H5P_DEFAULT) : -1;
    if (root >= 0) {
        tour_object(root, 0);
        H5Oclose(root);
    }
    H5Fclose(file);
}

#endif

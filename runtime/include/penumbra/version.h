/* The version of Penumbra that a program was compiled against; penumbra_version() in the library tells the one that runs. */
#ifndef PENUMBRA_VERSION_H
#define PENUMBRA_VERSION_H

#define PENUMBRA_VERSION_MAJOR 0
#define PENUMBRA_VERSION_MINOR 1
#define PENUMBRA_VERSION_PATCH 0

#endif

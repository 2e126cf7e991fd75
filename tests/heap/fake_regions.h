// The switch of the fake region facade in fake_regions.cc.
#pragma once

namespace penumbra::region {

// From now on every allocation fails with ENOMEM, or none does.
void set_fake_failure(bool fails);

}  // namespace penumbra::region

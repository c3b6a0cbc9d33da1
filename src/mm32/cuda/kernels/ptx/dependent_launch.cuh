// Programmatic dependent launch (PTX ISA, "griddepcontrol"; sm_90 and later): the next kernel of the stream may start while this
// one still runs. Without the launch attribute, and on older cards, both functions do nothing.
#pragma once

// Lets the next kernel start as soon as every block of this one has called this or has ended.
__device__ __forceinline__ void launch_dependents() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// Waits until the kernel before this one has ended and its writes are visible. A kernel that calls this late, or not at all, must
// synchronise its reads in another way (the `ready` counters of mm32_pack).
__device__ __forceinline__ void wait_for_previous_grid() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

#pragma once

template <class T> __device__ T scaled(T x, float alpha)
{
    return static_cast<T>(alpha) * x;
}

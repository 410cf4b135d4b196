package org.tensorflow.lite;

public interface Tensor {
    int numBytes();
}
